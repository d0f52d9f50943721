-- Reads the leases of a worker's call. ARGV[4] contains the tokens, each with the number of messages that it leases
-- (c16 I2), because the messages of one dequeue share a token. ARGV[5] and later are the fields, in the same order.
-- Needs: _record, _queue_context, _transition, _ready_indexes, _readable_records.
local fields, tokens = { unpack(ARGV, 5) }, {}
for at = 1, #ARGV[4], 18 do
    local token, count = read('>c16I2', ARGV[4], at)
    for n = #tokens + 1, #tokens + count do
        tokens[n] = token
    end
end
local records = fetch_readable_records(fields)

local function is_owned_by(record, flags, token)
    return band(flags, OWNED) ~= 0 and sub(record, AFTER_HEAD, 30) == token
end

-- Frees the exclusive value of a cancelled message. This is no transition: no new version, no event.
local function free_value_of_cancelled(field, record, retention)
    local state, flags, version, attempts = read(HEAD, record)
    local at = fixed_at(record, flags)
    free_value(field)
    put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, at))
    add_timer(2, now + retention, read('>I6', record, at), version, field)
end

-- Returns the result for a message whose lease the worker does not hold. If the message was cancelled while this worker
-- ran the message, and still holds its exclusive value, frees the value.
local function result_of_lost_lease(n, record, retention)
    if not record then
        return pack(RESULT, NOT_FOUND, 0, 0, 0)
    end
    local state, flags, version, _, until_ms = read(HEAD, record)
    if band(flags, HELD) ~= 0 and is_owned_by(record, flags, tokens[n]) then
        free_value_of_cancelled(fields[n], record, retention)
    end
    return pack(RESULT, LOST, state, version, until_ms)
end
