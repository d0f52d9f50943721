#!lua flags=no-writes
-- Counts the Pending messages that carry every pair of a filter. A call walks a bounded number of index entries.
-- KEYS: config messages pairs vpairs
-- INCLUDE: _constants _record _queue_context _require_current_config _filter_match
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  signature c8 and the pairs of the filter, each I2c0
-- ARGV[3]  number of entries to walk
-- ARGV[4]  cursor of the previous call; empty in the first call
-- Reply    {number of messages counted by this call, cursor for the next call (empty if none are left)}
-- Errors   STALECONFIG
-- Cost     one pair: O(log N) on a plain queue, O(values) on an exclusive one; several: the entries of the rarest pair
local asked, budget, cursor = wanted(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local matches, total = matcher(ARGV[2], asked), 0
local single = #asked == 1

-- Adds to `total` the matching entries of `key` from `from` on that start with `prefix`. Returns the last entry read if
-- the budget ends first, else nil.
local function count_matching(key, from, prefix, name_start)
    while true do
        local size = math.min(200, budget)
        local entries = call('ZRANGEBYLEX', key, from, '(' .. prefix .. '\255', 'LIMIT', 0, size)
        for n = 1, #entries do
            if matches(entries[n], #prefix + 15, name_start .. sub(entries[n], #prefix + 23)) then
                total = total + 1
            end
        end
        budget = budget - #entries
        if #entries < size then
            return nil
        elseif budget <= 0 then
            return entries[size]
        end
        from = '(' .. entries[size]
    end
end

if not exclusive then
    if single then
        return { call('ZLEXCOUNT', pairs, '[' .. asked[1], '(' .. asked[1] .. '\255'), '' }
    end
    local chosen = cursor == '' and rarest(asked) or sub(cursor, 1, 2 + read('>I2', cursor))
    local stopped = count_matching(pairs, cursor == '' and '[' .. chosen or '(' .. cursor, chosen, '')
    return { total, stopped or '' }
end

-- The groups of a value (_ready_indexes) are adjacent in `vpairs`, so one read leads from each value to the next.
local chosen, from, inside = nil, '-', ''
if cursor == '' then
    chosen = rarest(asked)
else
    chosen, from, inside = read('>I2c0I2c0I2c0', cursor)
end
local function stop(position)
    return { total, pack('>I2c0I2c0I2c0', #chosen, chosen, #from, from, #position, position) }
end
-- Each value needs at least two entries of the budget: one to find the value, one to search it.
while budget > 1 do
    local entry = call('ZRANGEBYLEX', vpairs, from, '+', 'LIMIT', 0, 1)[1]
    if not entry then
        return { total, '' }
    end
    local prefix = sub(entry, 1, 2 + read('>I2', entry))
    local group = prefix .. chosen
    budget = budget - 1
    if single then
        total = total + call('ZLEXCOUNT', vpairs, '[' .. group, '(' .. group .. '\255')
    else
        local stopped = count_matching(vpairs, inside == '' and '[' .. group or '(' .. inside, group, prefix)
        if stopped then
            return stop(stopped)
        end
        inside = ''
    end
    from = '(' .. prefix .. '\255'
end
return stop('')
