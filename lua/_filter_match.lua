-- Tests whether a message carries every pair of a filter. `where` is a signature c8 and the pairs, each I2c0.
-- Needs: _record, _queue_context.

-- Returns the pairs of a filter.
local function wanted(where)
    local asked, at = {}, 9
    while at <= #where do
        local after = at + 2 + read('>I2', where, at)
        asked[#asked + 1] = sub(where, at, after - 1)
        at = after
    end
    return asked
end

-- Returns the pair with the fewest index entries.
local function rarest(asked)
    local chosen, fewest = asked[1], math.huge
    for n = 1, #asked > 1 and #asked or 0 do
        local size = call('ZLEXCOUNT', pairs, '[' .. asked[n], '(' .. asked[n] .. '\255')
        if size < fewest then
            chosen, fewest = asked[n], size
        end
    end
    return chosen
end

-- Returns the state of a message, its order as two numbers, and its indexed pairs as a set, which is empty unless the
-- message is Pending. Returns 0 if there is no message.
local function looked_up(name)
    local record = call('HGET', messages, queue_number .. name)
    if not record then
        return 0
    end
    local state, flags = byte(record, 1, 2)
    local fixed = fixed_at(record, flags)
    local incarnation, due = read('>I6I6', record, fixed)
    local deadline, rank, at = order_in(record, flags, fixed, incarnation, due)
    local carried = {}
    if state == PENDING then
        local _, indexed, blob = pairs_of(record, flags, at)
        each_pair(indexed, blob, function(pair)
            carried[pair] = true
        end)
    end
    return state, deadline + BIAS, rank, carried
end

-- Returns a function that tests an index entry. The signature (a Bloom filter of the message's pairs) excludes most
-- messages without a read of the record.
local function matcher(where, asked)
    local high, low = read('>i4i4', where)
    return function(entry, signature_at, name)
        local first, second = read('>i4i4', entry, signature_at)
        if band(first, high) ~= high or band(second, low) ~= low then
            return false
        end
        local _, _, _, carried = looked_up(name)
        for n = 1, #asked do
            if not carried[asked[n]] then
                return false
            end
        end
        return true
    end
end
