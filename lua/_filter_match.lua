-- Tests whether a message carries every pair of a filter. The packed filter `where` is a signature of 8 bytes and the
-- pairs, each with its length (2 bytes) before it. A signature is a Bloom filter of the pairs.
-- Needs: _record, _queue_context.

-- Returns the pairs of a filter.
local function parse_filter(where)
    local filter_pairs, at = {}, 9
    while at <= #where do
        local next_at = at + 2 + read('>I2', where, at)
        filter_pairs[#filter_pairs + 1] = sub(where, at, next_at - 1)
        at = next_at
    end
    return filter_pairs
end

-- Returns the pair with the fewest index entries.
local function rarest_pair(filter_pairs)
    local rarest, fewest = filter_pairs[1], math.huge
    for n = 1, #filter_pairs > 1 and #filter_pairs or 0 do
        local size = call('ZLEXCOUNT', pairs, '[' .. filter_pairs[n], '(' .. filter_pairs[n] .. '\255')
        if size < fewest then
            rarest, fewest = filter_pairs[n], size
        end
    end
    return rarest
end

-- Returns the state of a message, the two numbers that determine its place in the queue (deadline and rank), and its
-- indexed pairs as a set with their number, which are empty unless the message is Pending. Fails if the record is
-- damaged.
local function parse_candidate(record)
    local state, flags = byte(record, 1, 2)
    local fixed = fixed_at(record, flags)
    local incarnation, due = read('>I6I6', record, fixed)
    local deadline, rank, at = read_order(record, flags, fixed, incarnation, due)
    local message_pairs, count = {}, 0
    if state == PENDING then
        local _, pair_count, packed_pairs = read_pairs(record, flags, at)
        count = pair_count
        for_each_pair(pair_count, packed_pairs, function(pair)
            message_pairs[pair] = true
        end)
    end
    return state, deadline + BIAS, rank, message_pairs, count
end

-- Returns the same for the message of this name. If there is no message, or its record is damaged, the state is 0.
local function read_candidate(name)
    local record = call('HGET', messages, queue_number .. name)
    if record then
        local is_readable, state, deadline, rank, message_pairs, pair_count = pcall(parse_candidate, record)
        if is_readable then
            return state, deadline, rank, message_pairs, pair_count
        end
    end
    return 0, 0, 0, {}, 0
end

-- Returns a function that tests an index entry. The function returns whether the message matches, and what the test
-- costs in the budget of a call, in addition to the entry. The signature in the entry excludes most messages without a
-- read of the record. A record that is read costs one entry, and one more for each of its pairs.
local function matcher(where, filter_pairs)
    local filter_high, filter_low = read('>i4i4', where)
    return function(entry, signature_at, name)
        local entry_high, entry_low = read('>i4i4', entry, signature_at)
        if band(entry_high, filter_high) ~= filter_high or band(entry_low, filter_low) ~= filter_low then
            return false, 0
        end
        local _, _, _, message_pairs, pair_count = read_candidate(name)
        local cost = 1 + pair_count
        for n = 1, #filter_pairs do
            if not message_pairs[filter_pairs[n]] then
                return false, cost
            end
        end
        return true, cost
    end
end
