-- Finds the most urgent Pending messages that carry every pair of `where`, by walking the index entries of the rarest
-- pair. Defines walk(where, cursor, limit, budget), which returns fields, cursor, more.
-- `fields` are the fields of the found messages in the hash `messages`. `budget` is the number of index entries to
-- read. If the budget ends first, the walk returns only the messages that certainly come first, and `more` is true. If
-- it has found none of these, it returns a cursor, with which the next call continues the walk (a split walk). A split
-- walk does not find messages that are added to the part of the index before its cursor.
-- Needs: _record, _ready_indexes, _filter_match.
local walk
if not exclusive then
    walk = function(where, cursor, limit, budget)
        local filter_pairs = parse_filter(where)
        if #filter_pairs == 1 then
            local names =
                call('ZRANGEBYLEX', pairs, '[' .. filter_pairs[1], '(' .. filter_pairs[1] .. '\255', 'LIMIT', 0, limit)
            for n = 1, #names do
                names[n] = queue_number .. sub(names[n], #filter_pairs[1] + 23)
            end
            return names
        end
        local rarest, from = nil, nil
        if cursor == '' then
            rarest = rarest_pair(filter_pairs)
            from = '[' .. rarest
        else
            rarest = sub(cursor, 1, 2 + read('>I2', cursor))
            from = '(' .. cursor
        end
        local matches, names, chunk_size, last = matcher(where, filter_pairs), {}, 100, nil
        while budget > 0 do
            local size = math.min(chunk_size, budget)
            local entries = call('ZRANGEBYLEX', pairs, from, '(' .. rarest .. '\255', 'LIMIT', 0, size)
            for n = 1, #entries do
                last = entries[n]
                local name = sub(last, #rarest + 23)
                if matches(last, #rarest + 15, name) then
                    names[#names + 1] = queue_number .. name
                    if #names == limit then
                        return names
                    end
                end
            end
            if #entries < size then
                return names
            end
            from, budget, chunk_size = '(' .. last, budget - size, math.min(chunk_size * 2, 800)
        end
        return names, #names == 0 and last or nil, true
    end
else
    -- Walks the groups of the rarest pair (_ready_indexes) in the order of their heads. The most urgent match of each
    -- group is a candidate. Candidates are final when no later group can contain a more urgent match.
    walk = function(where, cursor, limit, budget)
        local filter_pairs, candidates = parse_filter(where), {}
        local matches, has_one_pair = matcher(where, filter_pairs), #filter_pairs == 1
        local function is_outranked(deadline, rank)
            local last_candidate = candidates[limit]
            return last_candidate and (last_candidate[1] < deadline
                or (last_candidate[1] == deadline and last_candidate[2] < rank))
        end
        local function add_candidate(deadline, rank, name)
            local at = #candidates + 1
            while at > 1 and (deadline < candidates[at - 1][1]
                or (deadline == candidates[at - 1][1] and rank < candidates[at - 1][2])) do
                at = at - 1
            end
            table.insert(candidates, at, { deadline, rank, name })
            candidates[limit + 1] = nil
        end
        -- Searches one group for its most urgent match, which becomes a candidate. Returns the last entry read if the
        -- budget ends first, else nil.
        local function search_group(rarest, prefix, group_cursor)
            local group = prefix .. rarest
            local from, chunk_size = group_cursor ~= '' and '(' .. group_cursor or '[' .. group, 4
            while true do
                local size = math.min(chunk_size, budget)
                local members = call('ZRANGEBYLEX', vpairs, from, '(' .. group .. '\255', 'LIMIT', 0, size)
                budget = budget - #members
                for n = 1, #members do
                    local deadline, rank = read('>I8I6', members[n], #group + 1)
                    if is_outranked(deadline, rank) then
                        return nil
                    end
                    local name = prefix .. sub(members[n], #group + 23)
                    if matches(members[n], #group + 15, name) then
                        add_candidate(deadline, rank, name)
                        return nil
                    end
                end
                if #members < size then
                    return nil
                elseif budget <= 0 then
                    return members[size]
                end
                from, chunk_size = '(' .. members[size], math.min(chunk_size * 4, 256)
            end
        end

        local rarest, group, group_cursor, at = nil, '', '', nil
        if cursor == '' then
            rarest = rarest_pair(filter_pairs)
        else
            rarest, group, group_cursor, at = read('>I2c0I2c0I2c0', cursor)
            while at <= #cursor do
                local name
                name, at = read('>I2c0', cursor, at)
                local state, deadline, rank = read_candidate(name)
                local lock = call('HGET', locks, (read('>I2c0', name)))
                if state == PENDING and not (lock and byte(lock) == 82) then
                    add_candidate(deadline, rank, name)
                end
            end
        end
        local function names_up_to(deadline, rank)
            local names = {}
            for n = 1, #candidates do
                if candidates[n][1] < deadline or (candidates[n][1] == deadline and candidates[n][2] <= rank) then
                    names[n] = queue_number .. candidates[n][3]
                end
            end
            return names
        end
        local function stop(entry, group_position)
            local names = names_up_to(read('>I8I6', entry, #rarest + 1))
            if #names > 0 then
                return names, nil, true
            end
            local cursor_parts = {
                pack('>I2c0I2c0I2c0', #rarest, rarest, #entry, entry, #group_position, group_position),
            }
            for n = 1, #candidates do
                cursor_parts[n + 1] = pack('>I2c0', #candidates[n][3], candidates[n][3])
            end
            return names, table.concat(cursor_parts)
        end
        if group_cursor ~= '' then
            group_cursor = search_group(rarest,
                sub(group, #rarest + 23, #rarest + 24 + read('>I2', group, #rarest + 23)), group_cursor)
            if budget <= 0 then
                return stop(group, group_cursor or '')
            end
        end
        local from = group == '' and '[' .. rarest or '(' .. group
        while true do
            local size = math.min(100, budget)
            local entries = call('ZRANGEBYLEX', pairs, from, '(' .. rarest .. '\255', 'LIMIT', 0, size)
            for n = 1, #entries do
                local entry = entries[n]
                local deadline, rank = read('>I8I6', entry, #rarest + 1)
                if is_outranked(deadline, rank) then
                    return names_up_to(deadline, rank)
                end
                local value, next_at = read('>I2c0', entry, #rarest + 23)
                local prefix = sub(entry, #rarest + 23, next_at - 1)
                local lock = call('HGET', locks, value)
                if lock and byte(lock) == 82 then
                    park(prefix, rarest, entry)
                elseif has_one_pair then
                    add_candidate(deadline, rank, sub(entry, #rarest + 23))
                    if #candidates == limit then
                        return names_up_to(deadline, rank)
                    end
                else
                    group_cursor = search_group(rarest, prefix, '')
                end
                budget = budget - 1
                if budget <= 0 then
                    return stop(entry, group_cursor or '')
                end
            end
            if #entries < size then
                return names_up_to(math.huge, 0)
            end
            from = '(' .. entries[size]
        end
    end
end
