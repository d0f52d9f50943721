#!lua flags=no-writes
-- Counts the Pending messages that carry every pair of a filter. A call walks a bounded number of index entries.
-- KEYS: config messages pairs vpairs
-- INCLUDE: _constants _record _queue_context _require_current_config _filter_match
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  the filter: its signature c8 (_filter_match) and its pairs, each I2c0
-- ARGV[3]  budget in index entries (_filter_match)
-- ARGV[4]  cursor of the previous call; empty in the first call
-- Reply    {number of messages counted by this call, cursor for the next call (empty if none are left)}
-- Errors   STALECONFIG
-- Cost     one pair: O(log N), or O(values) on an exclusive queue; several pairs: the entries of the rarest pair
local filter_pairs, budget, cursor = parse_filter(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local matches, total = matcher(ARGV[2], filter_pairs), 0
local has_one_pair = #filter_pairs == 1

-- Counts the matching entries of `key` that start with `prefix`, beginning at `from`, and adds their number to `total`.
-- Returns the last entry read if the budget ends first, else nil.
local function count_matching(key, from, prefix, name_prefix)
    while true do
        local size = math.min(200, budget)
        local entries = call('ZRANGEBYLEX', key, from, '(' .. prefix .. '\255', 'LIMIT', 0, size)
        budget = budget - #entries
        for n = 1, #entries do
            local is_match, cost = matches(entries[n], #prefix + 15, name_prefix .. sub(entries[n], #prefix + 23))
            total, budget = total + (is_match and 1 or 0), budget - cost
            if budget < 0 then
                return entries[n]
            end
        end
        if #entries < size then
            return nil
        elseif budget <= 0 then
            return entries[size]
        end
        from = '(' .. entries[size]
    end
end

if not exclusive then
    if has_one_pair then
        return { call('ZLEXCOUNT', pairs, '[' .. filter_pairs[1], '(' .. filter_pairs[1] .. '\255'), '' }
    end
    local rarest = cursor == '' and rarest_pair(filter_pairs) or sub(cursor, 1, 2 + read('>I2', cursor))
    local last_entry = count_matching(pairs, cursor == '' and '[' .. rarest or '(' .. cursor, rarest, '')
    return { total, last_entry or '' }
end

-- The groups of an exclusive value (_ready_indexes) are adjacent in `vpairs`, so one read finds the next exclusive
-- value.
local rarest, from, group_cursor = nil, '-', ''
if cursor == '' then
    rarest = rarest_pair(filter_pairs)
else
    rarest, from, group_cursor = read('>I2c0I2c0I2c0', cursor)
end
local function stop(position)
    return { total, pack('>I2c0I2c0I2c0', #rarest, rarest, #from, from, #position, position) }
end
-- A turn needs at least two entries of the budget: one to find the exclusive value, one to search it.
while budget > 1 do
    -- Within an exclusive value, the cursor names the value: another value may have been added before it, or the value
    -- may be gone.
    local entry = group_cursor ~= '' and group_cursor or call('ZRANGEBYLEX', vpairs, from, '+', 'LIMIT', 0, 1)[1]
    if not entry then
        return { total, '' }
    end
    local prefix = sub(entry, 1, 2 + read('>I2', entry))
    local group = prefix .. rarest
    budget = budget - 1
    if has_one_pair then
        total = total + call('ZLEXCOUNT', vpairs, '[' .. group, '(' .. group .. '\255')
    else
        local last_entry =
            count_matching(vpairs, group_cursor == '' and '[' .. group or '(' .. group_cursor, group, prefix)
        if last_entry then
            return stop(last_entry)
        end
        group_cursor = ''
    end
    from = '(' .. prefix .. '\255'
    -- To find an exclusive value takes as long as to walk past six entries.
    budget = budget - 5
end
return stop('')
