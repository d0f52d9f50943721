-- Finds the most urgent Pending messages that carry every pair of `where`, by walking the index entries of the rarest
-- pair. Defines walk(where, cursor, limit, budget), which returns fields, cursor, more.
-- `budget` is the number of entries to walk. If the walk reaches the end of the budget, it returns the fields that are
-- certain, and `more` is true. If no field is certain, it returns a cursor, with which the next call continues the walk
-- (a split walk). A split walk does not find messages that are added to the part of the index before its cursor.
-- Needs: _record, _ready_indexes, _filter_match.
local walk
if not exclusive then
    walk = function(where, cursor, limit, budget)
        local asked = wanted(where)
        if #asked == 1 then
            local names = call('ZRANGEBYLEX', pairs, '[' .. asked[1], '(' .. asked[1] .. '\255', 'LIMIT', 0, limit)
            for n = 1, #names do
                names[n] = queue_number .. sub(names[n], #asked[1] + 23)
            end
            return names
        end
        local chosen, from = nil, nil
        if cursor == '' then
            chosen = rarest(asked)
            from = '[' .. chosen
        else
            chosen = sub(cursor, 1, 2 + read('>I2', cursor))
            from = '(' .. cursor
        end
        local matches, names, chunk, last = matcher(where, asked), {}, 100, nil
        while budget > 0 do
            local size = math.min(chunk, budget)
            local entries = call('ZRANGEBYLEX', pairs, from, '(' .. chosen .. '\255', 'LIMIT', 0, size)
            for n = 1, #entries do
                last = entries[n]
                local name = sub(last, #chosen + 23)
                if matches(last, #chosen + 15, name) then
                    names[#names + 1] = queue_number .. name
                    if #names == limit then
                        return names
                    end
                end
            end
            if #entries < size then
                return names
            end
            from, budget, chunk = '(' .. last, budget - size, math.min(chunk * 2, 800)
        end
        return names, #names == 0 and last or nil, true
    end
else
    -- Walks the groups of the rarest pair (_ready_indexes) in the order of their heads. The most urgent match of each
    -- group is a candidate. Candidates are final when no later group can contain a more urgent match.
    walk = function(where, cursor, limit, budget)
        local asked, best = wanted(where), {}
        local matches, single = matcher(where, asked), #asked == 1
        local function outranked(deadline, rank)
            local worst = best[limit]
            return worst and (worst[1] < deadline or (worst[1] == deadline and worst[2] < rank))
        end
        local function keep(deadline, rank, name)
            local at = #best + 1
            while at > 1 and (deadline < best[at - 1][1] or (deadline == best[at - 1][1] and rank < best[at - 1][2])) do
                at = at - 1
            end
            table.insert(best, at, { deadline, rank, name })
            best[limit + 1] = nil
        end
        -- Searches one group for its most urgent match, which becomes a candidate. Returns the last entry read if the
        -- budget ends first, else nil.
        local function search(chosen, prefix, inner)
            local group = prefix .. chosen
            local from, chunk = inner ~= '' and '(' .. inner or '[' .. group, 4
            while true do
                local size = math.min(chunk, budget)
                local members = call('ZRANGEBYLEX', vpairs, from, '(' .. group .. '\255', 'LIMIT', 0, size)
                budget = budget - #members
                for n = 1, #members do
                    local deadline, rank = read('>I8I6', members[n], #group + 1)
                    if outranked(deadline, rank) then
                        return nil
                    end
                    local name = prefix .. sub(members[n], #group + 23)
                    if matches(members[n], #group + 15, name) then
                        keep(deadline, rank, name)
                        return nil
                    end
                end
                if #members < size then
                    return nil
                elseif budget <= 0 then
                    return members[size]
                end
                from, chunk = '(' .. members[size], math.min(chunk * 4, 256)
            end
        end

        local chosen, group, inner, at = nil, '', '', nil
        if cursor == '' then
            chosen = rarest(asked)
        else
            chosen, group, inner, at = read('>I2c0I2c0I2c0', cursor)
            while at <= #cursor do
                local name
                name, at = read('>I2c0', cursor, at)
                local state, deadline, rank = looked_up(name)
                if state == PENDING and byte(call('HGET', locks, (read('>I2c0', name)))) ~= 82 then
                    keep(deadline, rank, name)
                end
            end
        end
        local function names_up_to(deadline, rank)
            local names = {}
            for n = 1, #best do
                if best[n][1] < deadline or (best[n][1] == deadline and best[n][2] <= rank) then
                    names[n] = queue_number .. best[n][3]
                end
            end
            return names
        end
        local function stop(entry, where_inside)
            local names = names_up_to(read('>I8I6', entry, #chosen + 1))
            if #names > 0 then
                return names, nil, true
            end
            local saved = { pack('>I2c0I2c0I2c0', #chosen, chosen, #entry, entry, #where_inside, where_inside) }
            for n = 1, #best do
                saved[n + 1] = pack('>I2c0', #best[n][3], best[n][3])
            end
            return names, table.concat(saved)
        end
        if inner ~= '' then
            inner = search(chosen, sub(group, #chosen + 23, #chosen + 24 + read('>I2', group, #chosen + 23)), inner)
            if budget <= 0 then
                return stop(group, inner or '')
            end
        end
        local from = group == '' and '[' .. chosen or '(' .. group
        while true do
            local size = math.min(100, budget)
            local entries = call('ZRANGEBYLEX', pairs, from, '(' .. chosen .. '\255', 'LIMIT', 0, size)
            for n = 1, #entries do
                local entry = entries[n]
                local deadline, rank = read('>I8I6', entry, #chosen + 1)
                if outranked(deadline, rank) then
                    return names_up_to(deadline, rank)
                end
                local value, after = read('>I2c0', entry, #chosen + 23)
                local prefix = sub(entry, #chosen + 23, after - 1)
                local lock = call('HGET', locks, value)
                if byte(lock) == 82 then
                    park(prefix, chosen, entry)
                elseif single then
                    keep(deadline, rank, sub(entry, #chosen + 23))
                    if #best == limit then
                        return names_up_to(deadline, rank)
                    end
                else
                    inner = search(chosen, prefix, '')
                end
                budget = budget - 1
                if budget <= 0 then
                    return stop(entry, inner or '')
                end
            end
            if #entries < size then
                return names_up_to(math.huge, 0)
            end
            from = '(' .. entries[size]
        end
    end
end
