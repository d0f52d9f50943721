-- Finds the most urgent Pending messages that carry every pair of `where`, by walking the index entries of the rarest
-- pair. Defines walk(where, cursor, limit, budget), which returns fields, cursor, more.
-- `fields` are the fields of the found messages in the hash `messages`. `budget` is the number of index entries to
-- read; a record that is read counts as several entries (_filter_match). If the budget ends first, the walk returns only
-- the messages that certainly come first, and `more` is true. If it has found none of these, it returns a cursor, with
-- which the next call continues the walk (a split walk). A split walk may not find messages of an index entry that comes
-- to be before its cursor, because a message is added. Between two calls, other clients change the index, so a call
-- assumes nothing about what earlier calls have read.
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
            budget = budget - #entries
            for n = 1, #entries do
                last = entries[n]
                local name = sub(last, #rarest + 23)
                local is_match, cost = matches(last, #rarest + 15, name)
                budget = budget - cost
                if is_match then
                    names[#names + 1] = queue_number .. name
                    if #names == limit then
                        return names
                    end
                end
                if budget < 0 then
                    return names, #names == 0 and last or nil, true
                end
            end
            if #entries < size then
                return names
            end
            from, chunk_size = '(' .. last, math.min(chunk_size * 2, 800)
        end
        return names, #names == 0 and last or nil, true
    end
else
    -- Walks the groups of the rarest pair (_ready_indexes) in the order of their heads. The most urgent match of each
    -- group is a candidate. Candidates are final when no later group can contain a more urgent match.
    -- In a split walk, a group can occur again behind the cursor, because its head has changed since an earlier call.
    -- It is searched again, and its match replaces the candidate of the same value.
    walk = function(where, cursor, limit, budget)
        local filter_pairs, candidates, is_split, has_lost_candidate = parse_filter(where), {}, cursor ~= '', false
        local matches, has_one_pair, candidate_of = matcher(where, filter_pairs), #filter_pairs == 1, {}
        local function is_leased(value)
            local lock = call('HGET', locks, value)
            return lock and byte(lock) == 82
        end
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
            local candidate = { deadline, rank, name }
            table.insert(candidates, at, candidate)
            candidates[limit + 1] = nil
            if is_split then
                candidate_of[sub(name, 1, 2 + read('>I2', name))] = candidate
            end
        end
        local function remove_candidate(prefix)
            for n = 1, candidate_of[prefix] and #candidates or 0 do
                if candidates[n] == candidate_of[prefix] then
                    table.remove(candidates, n)
                    has_lost_candidate = true
                    break
                end
            end
            candidate_of[prefix] = nil
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
                    local is_match, cost = matches(members[n], #group + 15, name)
                    budget = budget - cost
                    if is_match then
                        add_candidate(deadline, rank, name)
                        return nil
                    elseif budget < 0 then
                        return members[n]
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
                local old_deadline, old_rank, name
                old_deadline, old_rank, name, at = read('>I8I6I2c0', cursor, at)
                local state, deadline, rank
                if name ~= '' then
                    state, deadline, rank = read_candidate(name)
                end
                -- If the order is the same, this is the same message, with the same pairs.
                if state == PENDING and deadline == old_deadline and rank == old_rank
                    and not is_leased((read('>I2c0', name))) then
                    add_candidate(deadline, rank, name)
                else
                    has_lost_candidate = true
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
                local deadline, rank, name = unpack(candidates[n])
                cursor_parts[n + 1] = pack('>I8I6I2c0', deadline, rank, #name, name)
            end
            if has_lost_candidate then
                -- An empty name means that a candidate was lost.
                cursor_parts[#cursor_parts + 1] = pack('>I8I6I2', 0, 0, 0)
            end
            return names, table.concat(cursor_parts)
        end
        if group_cursor ~= '' then
            local value, next_at = read('>I2c0', group, #rarest + 23)
            if is_leased(value) then
                group_cursor = nil
            else
                group_cursor = search_group(rarest, sub(group, #rarest + 23, next_at - 1), group_cursor)
            end
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
                remove_candidate(prefix)
                if is_leased(value) then
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
                local names = names_up_to(math.huge, 0)
                -- The lost candidates may have displaced others, which are still available.
                if #names == 0 and has_lost_candidate then
                    return walk(where, '', limit, budget)
                end
                return names, nil, has_lost_candidate
            end
            from = '(' .. entries[size]
        end
    end
end
