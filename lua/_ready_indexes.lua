-- Maintains the indexes of deliverable messages. Defines enter (a message becomes Pending), leave (the message stops
-- being Pending without a lease), take (the message is leased) and release (the leased message frees its value).
--   plain      `ready` holds every Pending message, `pairs` one entry for each indexed pair of each Pending message
--   exclusive  `ready` holds the head of each free value, `waiting` the other Pending messages. The head of a
--              value is the Pending message with the first order. `locks` maps a free value that has a head to 'H'
--              order id, the order and id of the head. It maps a leased value to 'R' id, the id of the leased message.
--              `vpairs` has an entry for each indexed pair of each Pending message. The entries of one value and one
--              pair are a group. `pairs` has only the first entry of each group. While a value is leased, some of its
--              groups are `parked`: they have no entry in `pairs`
-- A member of `ready` is rank I6 .. field; its score is the deadline. An order is pack('>I8I6', deadline + 2^52, rank):
-- as bytes, orders sort by deadline, then by rank (_record). Lua compares orders as numbers, because `<` on strings
-- depends on the server's locale.
local enter, leave, take, release, within, park
-- The weight of a written entry in the budget of a call. A write takes as long as walking past four entries, and an
-- exclusive queue writes about four entries for each entry that a plain queue writes.
local WEIGHT = exclusive and 16 or 4
local function order_of(deadline, rank)
    return pack('>I8I6', deadline + BIAS, rank)
end

if not exclusive then
    enter = function(field, deadline, rank, signature, indexed, blob)
        ready_added[ready_size + 1] = deadline
        ready_size = ready_size + 2
        ready_added[ready_size] = pack('>I6c0', rank, field)
        made_ready = made_ready + 1
        if indexed > 0 then
            local entry = order_of(deadline, rank) .. signature .. sub(field, 3)
            each_pair(indexed, blob, function(pair)
                local size = #pairs_added
                pairs_added[size + 1] = 0
                pairs_added[size + 2] = pair .. entry
            end)
        end
    end
    leave = function(field, deadline, rank, signature, indexed, blob)
        ready_removed[#ready_removed + 1] = pack('>I6c0', rank, field)
        if indexed > 0 then
            local entry = order_of(deadline, rank) .. signature .. sub(field, 3)
            each_pair(indexed, blob, function(pair)
                pairs_removed[#pairs_removed + 1] = pair .. entry
            end)
        end
    end
    take = leave
    release = function() end
else
    local PARKED_AT_ENTER, PARKED_MAX = 16, 64
    -- Returns the value, its prefix (the value as I2c0) and the id.
    local function split(field)
        local value, at = read('>I2c0', field, 3)
        return value, sub(field, 3, at - 1), sub(field, at)
    end
    within = function(key, prefix, most)
        return call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, most)
    end
    local function how_many_parked(prefix)
        return call('ZLEXCOUNT', parked, '[' .. prefix, '(' .. prefix .. '\255')
    end
    -- Parks a group of a leased value, so that walks skip the group. Returns false if too many groups of the value are
    -- parked already.
    park = function(prefix, pair, entry)
        if how_many_parked(prefix) >= PARKED_MAX then
            return false
        end
        call('ZREM', pairs, entry)
        call('ZADD', parked, 0, prefix .. pair)
        return true
    end
    -- Returns the entry of `pairs` for an entry of `vpairs`: pair, order, signature, then the name (value and id).
    local function head_entry(entry, value_prefix, pair)
        local at = #value_prefix + #pair + 1
        return pair .. sub(entry, at, at + 21) .. value_prefix .. sub(entry, at + 22)
    end
    local function to_ready(value, prefix, order, id)
        local deadline, rank = read('>I8I6', order)
        call('HSET', locks, value, 'H' .. order .. id)
        call('ZADD', ready, deadline - BIAS, pack('>I6', rank) .. queue_number .. prefix .. id)
    end
    -- Moves the head of a value to `waiting`; `lock` is the value's entry in `locks`.
    local function to_waiting(prefix, lock)
        call('ZREM', ready, sub(lock, 10, 15) .. queue_number .. prefix .. sub(lock, 16))
        call('ZADD', waiting, 0, prefix .. sub(lock, 2))
    end

    local function index(prefix, entry, indexed, blob, leased)
        each_pair(indexed, blob, function(pair)
            local group = prefix .. pair
            local member = group .. entry
            call('ZADD', vpairs, 0, member)
            local first = within(vpairs, group, 2)
            if first[1] ~= member or call('ZSCORE', parked, group) then
                return
            end
            if first[2] then
                call('ZREM', pairs, head_entry(first[2], prefix, pair))
            elseif leased and how_many_parked(prefix) < PARKED_AT_ENTER then
                call('ZADD', parked, 0, group)
                return
            end
            call('ZADD', pairs, 0, head_entry(member, prefix, pair))
        end)
    end
    -- `room` is the number of further groups that may be parked. The number is limited, because one release processes
    -- all parked groups of the value.
    local function unindex(prefix, entry, indexed, blob, room)
        each_pair(indexed, blob, function(pair)
            local group = prefix .. pair
            local member = group .. entry
            call('ZREM', vpairs, member)
            if call('ZREM', pairs, head_entry(member, prefix, pair)) == 0 then
                return
            end
            local following = within(vpairs, group, 1)[1]
            if following and room > 0 then
                call('ZADD', parked, 0, group)
                room = room - 1
            elseif following then
                call('ZADD', pairs, 0, head_entry(following, prefix, pair))
            end
        end)
    end

    enter = function(field, deadline, rank, signature, indexed, blob)
        local value, prefix, id = split(field)
        local order, lock = order_of(deadline, rank), call('HGET', locks, value)
        local leased = lock and byte(lock) == 82
        local first, second
        if lock and not leased then
            first, second = read('>I8I6', lock, 2)
        end
        local behind = leased or (first and (first < deadline + BIAS or (first == deadline + BIAS and second < rank)))
        if behind then
            call('ZADD', waiting, 0, prefix .. order .. id)
        else
            if lock then
                to_waiting(prefix, lock)
            end
            to_ready(value, prefix, order, id)
        end
        -- If the value is free, a dequeue with a filter may take this message even if it is not the head.
        if not behind or (not leased and indexed > 0) then
            made_ready = made_ready + 1
        end
        if indexed > 0 then
            index(prefix, order .. signature .. id, indexed, blob, leased)
        end
    end
    leave = function(field, deadline, rank, signature, indexed, blob)
        local value, prefix, id = split(field)
        local order, lock = order_of(deadline, rank), call('HGET', locks, value)
        if lock == 'H' .. order .. id then
            call('ZREM', ready, sub(lock, 10, 15) .. field)
            local following = within(waiting, prefix, 1)[1]
            if following then
                call('ZREM', waiting, following)
                to_ready(value, prefix, sub(following, #prefix + 1, #prefix + 14), sub(following, #prefix + 15))
            else
                call('HDEL', locks, value)
            end
        else
            call('ZREM', waiting, prefix .. order .. id)
        end
        if indexed > 0 then
            local room = byte(lock) == 82 and PARKED_MAX - how_many_parked(prefix) or 0
            unindex(prefix, order .. signature .. id, indexed, blob, room)
        end
    end
    -- Invariant: the value is free. No other message becomes the head here, so a call leases at most one message of a
    -- value.
    take = function(field, deadline, rank, signature, indexed, blob)
        local value, prefix, id = split(field)
        local order, lock = order_of(deadline, rank), call('HGET', locks, value)
        if lock == 'H' .. order .. id then
            call('ZREM', ready, sub(lock, 10, 15) .. field)
        else
            to_waiting(prefix, lock)
            call('ZREM', waiting, prefix .. order .. id)
        end
        call('HSET', locks, value, 'R' .. id)
        if indexed > 0 then
            unindex(prefix, order .. signature .. id, indexed, blob, PARKED_MAX)
        end
    end
    release = function(field)
        local value, prefix = split(field)
        local following = within(waiting, prefix, 1)[1]
        if following then
            call('ZREM', waiting, following)
            to_ready(value, prefix, sub(following, #prefix + 1, #prefix + 14), sub(following, #prefix + 15))
            made_ready = made_ready + 1
        else
            call('HDEL', locks, value)
        end
        local groups = within(parked, prefix, PARKED_MAX + PARKED_AT_ENTER)
        if #groups > 0 then
            for n = 1, #groups do
                local pair, head = sub(groups[n], #prefix + 1), within(vpairs, groups[n], 1)[1]
                if head then
                    call('ZADD', pairs, 0, head_entry(head, prefix, pair))
                end
            end
            call('ZREM', parked, unpack(groups))
        end
    end
end
