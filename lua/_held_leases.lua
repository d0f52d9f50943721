-- What the calls of a worker share: ARGV[4] has the tokens, each with how many messages it leases (c16 I2), as those of
-- one dequeue have the same; the items of ARGV from the fifth on are the fields, in that order.
-- Needs: _record, _queue_context, _transition, _ready_indexes.
local fields, tokens = { unpack(ARGV, 5) }, {}
for at = 1, #ARGV[4], 18 do
    local token, leased = read('>c16I2', ARGV[4], at)
    for n = #tokens + 1, #tokens + leased do
        tokens[n] = token
    end
end
local records = fetch(fields)

local function owner_is(record, flags, token)
    return band(flags, OWNED) ~= 0 and sub(record, UNOWNED, 30) == token
end

-- A cancelled message holds its exclusive value until its worker calls again. Not a transition: no version, no event.
local function let_go(field, record, retention)
    local state, flags, version, attempts = read(HEAD, record)
    local at = fixed_at(record, flags)
    release(field)
    put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, at))
    timer(2, now + retention, read('>I6', record, at), version, field)
end

-- Why a worker's call on a message that is not its own to finish is refused.
local function refusal(n, record, retention)
    if not record then
        return pack(RESULT, NOT_FOUND, 0, 0, 0)
    end
    local state, flags, version, _, until_ms = read(HEAD, record)
    if band(flags, HELD) ~= 0 and owner_is(record, flags, tokens[n]) then
        let_go(fields[n], record, retention)
    end
    return pack(RESULT, LOST, state, version, until_ms)
end
