-- Maintains the indexes of deliverable messages. Defines add_pending (a message becomes Pending), remove_pending (the
-- message leaves Pending and is not leased), lease_pending (the message is leased) and free_value (the leased message
-- frees its value).
--   plain      `ready` holds every Pending message, `pairs` one entry for each indexed pair of each Pending message
--   exclusive  `ready` holds the head of each free value, `waiting` the other Pending messages. The head of a
--              value is the Pending message with the lowest order (see below). In `locks`, the entry of a free value
--              with a head is 'H' .. order of the head .. id of the head. The entry of a leased value is 'R' .. id of
--              the leased message. `vpairs` has an entry for each indexed pair of each Pending message. The entries of
--              one value and one pair are a group. `pairs` has only the first entry of each group. While a value is
--              leased, some of its groups are `parked`: they have no entry in `pairs`
-- A member of `ready` is rank I6 .. field; its score is the deadline. An order is pack('>I8I6', deadline + 2^52, rank):
-- as bytes, orders sort by deadline, then by rank (_record). Lua compares orders as numbers, because `<` on strings
-- depends on the server's locale.
local add_pending, remove_pending, lease_pending, free_value, drop_undeliverable, first_entries, park
-- The weight of a written entry in the budget of a call. A write takes as long as walking past four entries, and an
-- exclusive queue writes about four entries for each entry that another queue writes.
local WEIGHT = exclusive and 16 or 4
local function pack_order(deadline, rank)
    return pack('>I8I6', deadline + BIAS, rank)
end

if not exclusive then
    add_pending = function(field, deadline, rank, signature, pair_count, packed_pairs)
        ready_added[ready_added_size + 1] = deadline
        ready_added_size = ready_added_size + 2
        ready_added[ready_added_size] = pack('>I6c0', rank, field)
        new_ready_count = new_ready_count + 1
        if pair_count > 0 then
            local entry = pack_order(deadline, rank) .. signature .. sub(field, 3)
            for_each_pair(pair_count, packed_pairs, function(pair)
                local size = #pairs_added
                pairs_added[size + 1] = 0
                pairs_added[size + 2] = pair .. entry
            end)
        end
    end
    remove_pending = function(field, deadline, rank, signature, pair_count, packed_pairs)
        ready_removed[#ready_removed + 1] = pack('>I6c0', rank, field)
        if pair_count > 0 then
            local entry = pack_order(deadline, rank) .. signature .. sub(field, 3)
            for_each_pair(pair_count, packed_pairs, function(pair)
                pairs_removed[#pairs_removed + 1] = pair .. entry
            end)
        end
    end
    lease_pending = remove_pending
    free_value = function() end
    drop_undeliverable = function() end
else
    -- These indexes are written before `commit`, which cannot undo the writes if a stream refuses its entry.
    local refusal = refusal_of_streams()
    if refusal then
        return refusal
    end
    local PARKED_MAX_ON_ADD, PARKED_MAX = 16, 64
    -- Returns the value, its prefix (the value as I2c0) and the id.
    local function split_field(field)
        local value, at = read('>I2c0', field, 3)
        return value, sub(field, 3, at - 1), sub(field, at)
    end
    first_entries = function(key, prefix, limit)
        return call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, limit)
    end
    local function count_parked(prefix)
        return call('ZLEXCOUNT', parked, '[' .. prefix, '(' .. prefix .. '\255')
    end
    -- Parks a group of a leased value, so that walks skip the group. Returns false if too many groups of the value are
    -- parked already.
    park = function(prefix, pair, entry)
        if count_parked(prefix) >= PARKED_MAX then
            return false
        end
        call('ZREM', pairs, entry)
        call('ZADD', parked, 0, prefix .. pair)
        return true
    end
    -- Returns the entry of `pairs` for an entry of `vpairs`: pair, order, signature (_filter_match), then the name
    -- (value and id).
    local function head_entry(entry, value_prefix, pair)
        local at = #value_prefix + #pair + 1
        return pair .. sub(entry, at, at + 21) .. value_prefix .. sub(entry, at + 22)
    end
    -- Returns whether `lock`, the entry of a value in `locks`, names a head. Any other entry counts as that of a leased
    -- value, also a damaged one: the next dequeue or end of a lease of the value replaces the entry.
    local function names_head(lock)
        return lock and byte(lock) == 72 and #lock >= 15
    end
    local function set_head(value, prefix, order, id)
        local deadline, rank = read('>I8I6', order)
        call('HSET', locks, value, 'H' .. order .. id)
        call('ZADD', ready, deadline - BIAS, pack('>I6', rank) .. queue_number .. prefix .. id)
    end
    -- Makes the first waiting message of a value its head. Returns false if no message waits. Removes entries that are
    -- too short: no script writes them.
    local function set_next_head(value, prefix)
        while true do
            local next_entry = first_entries(waiting, prefix, 1)[1]
            if not next_entry then
                return false
            end
            call('ZREM', waiting, next_entry)
            if #next_entry >= #prefix + 14 then
                set_head(value, prefix, sub(next_entry, #prefix + 1, #prefix + 14), sub(next_entry, #prefix + 15))
                return true
            end
        end
    end
    -- Moves the head of a value to `waiting`; `lock` is the value's entry in `locks`.
    local function move_head_to_waiting(prefix, lock)
        call('ZREM', ready, sub(lock, 10, 15) .. queue_number .. prefix .. sub(lock, 16))
        call('ZADD', waiting, 0, prefix .. sub(lock, 2))
    end

    local function index(prefix, entry, pair_count, packed_pairs, is_leased)
        for_each_pair(pair_count, packed_pairs, function(pair)
            local group = prefix .. pair
            local member = group .. entry
            call('ZADD', vpairs, 0, member)
            local members = first_entries(vpairs, group, 2)
            if members[1] ~= member or call('ZSCORE', parked, group) then
                return
            end
            if members[2] then
                call('ZREM', pairs, head_entry(members[2], prefix, pair))
            elseif is_leased and count_parked(prefix) < PARKED_MAX_ON_ADD then
                call('ZADD', parked, 0, group)
                return
            end
            call('ZADD', pairs, 0, head_entry(member, prefix, pair))
        end)
    end
    -- `parks_left` is the number of further groups that may be parked. The number is limited, because one call of
    -- free_value processes all parked groups of the value.
    local function unindex(prefix, entry, pair_count, packed_pairs, parks_left)
        for_each_pair(pair_count, packed_pairs, function(pair)
            local group = prefix .. pair
            local member = group .. entry
            call('ZREM', vpairs, member)
            if call('ZREM', pairs, head_entry(member, prefix, pair)) == 0 then
                return
            end
            local next_entry = first_entries(vpairs, group, 1)[1]
            if next_entry and parks_left > 0 then
                call('ZADD', parked, 0, group)
                parks_left = parks_left - 1
            elseif next_entry then
                call('ZADD', pairs, 0, head_entry(next_entry, prefix, pair))
            end
        end)
    end

    add_pending = function(field, deadline, rank, signature, pair_count, packed_pairs)
        local value, prefix, id = split_field(field)
        local order, lock = pack_order(deadline, rank), call('HGET', locks, value)
        local has_head = names_head(lock)
        local is_leased = lock and not has_head
        local head_deadline, head_rank
        if has_head then
            head_deadline, head_rank = read('>I8I6', lock, 2)
        end
        local must_wait = is_leased or (head_deadline and (head_deadline < deadline + BIAS
            or (head_deadline == deadline + BIAS and head_rank < rank)))
        if must_wait then
            call('ZADD', waiting, 0, prefix .. order .. id)
        else
            if lock then
                move_head_to_waiting(prefix, lock)
            end
            set_head(value, prefix, order, id)
        end
        -- If the value is free, a dequeue with a filter may take this message even if it is not the head.
        if not must_wait or (not is_leased and pair_count > 0) then
            new_ready_count = new_ready_count + 1
        end
        if pair_count > 0 then
            index(prefix, order .. signature .. id, pair_count, packed_pairs, is_leased)
        end
    end
    remove_pending = function(field, deadline, rank, signature, pair_count, packed_pairs)
        local value, prefix, id = split_field(field)
        local order, lock = pack_order(deadline, rank), call('HGET', locks, value)
        if lock == 'H' .. order .. id then
            call('ZREM', ready, sub(lock, 10, 15) .. field)
            if not set_next_head(value, prefix) then
                call('HDEL', locks, value)
            end
        else
            call('ZREM', waiting, prefix .. order .. id)
        end
        if pair_count > 0 then
            local parks_left = lock and byte(lock) == 82 and PARKED_MAX - count_parked(prefix) or 0
            unindex(prefix, order .. signature .. id, pair_count, packed_pairs, parks_left)
        end
    end
    -- Invariant: the value is free. No other message becomes the head here, so a call leases at most one message of a
    -- value.
    lease_pending = function(field, deadline, rank, signature, pair_count, packed_pairs)
        local value, prefix, id = split_field(field)
        local order, lock = pack_order(deadline, rank), call('HGET', locks, value)
        if lock == 'H' .. order .. id then
            call('ZREM', ready, sub(lock, 10, 15) .. field)
        else
            if names_head(lock) then
                move_head_to_waiting(prefix, lock)
            else
                call('ZREM', ready, pack('>I6c0', rank, field))
            end
            call('ZREM', waiting, prefix .. order .. id)
        end
        call('HSET', locks, value, 'R' .. id)
        if pair_count > 0 then
            unindex(prefix, order .. signature .. id, pair_count, packed_pairs, PARKED_MAX)
        end
    end
    -- Puts the next messages in the places of a message that cannot be delivered: as the head of its value and, if the
    -- call has removed its entry of `pairs`, as the first of the group of this `pair`.
    drop_undeliverable = function(field, pair, entry)
        local value, prefix, id = split_field(field)
        if pair then
            call('ZREM', vpairs, prefix .. pair .. sub(entry, #pair + 1, #pair + 22) .. id)
            local next_entry = first_entries(vpairs, prefix .. pair, 1)[1]
            if next_entry then
                call('ZADD', pairs, 0, head_entry(next_entry, prefix, pair))
            end
        end
        local lock = call('HGET', locks, value)
        if names_head(lock) and sub(lock, 16) == id then
            call('ZREM', ready, sub(lock, 10, 15) .. field)
            free_value(field)
        end
    end
    free_value = function(field)
        local value, prefix = split_field(field)
        if set_next_head(value, prefix) then
            new_ready_count = new_ready_count + 1
        else
            call('HDEL', locks, value)
        end
        local groups = first_entries(parked, prefix, PARKED_MAX + PARKED_MAX_ON_ADD)
        if #groups > 0 then
            for n = 1, #groups do
                local pair, head = sub(groups[n], #prefix + 1), first_entries(vpairs, groups[n], 1)[1]
                if head then
                    call('ZADD', pairs, 0, head_entry(head, prefix, pair))
                end
            end
            call('ZREM', parked, unpack(groups))
        end
    end
end
