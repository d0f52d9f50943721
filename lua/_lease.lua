-- What the calls of a worker share: items of ARGV from the fourth on are token c16 .. name.
-- Needs: _record, _context, _transition, _pending.
local names, tokens = {}, {}
for n = 4, #ARGV do
    tokens[n - 3] = sub(ARGV[n], 1, 16)
    names[n - 3] = sub(ARGV[n], 17)
end

-- Where the sections after OWNED start.
local function after_owner(record, at)
    return at + 17 + byte(record, at + 16)
end

local function owner_is(record, flags, at, token)
    return band(flags, OWNED) ~= 0 and sub(record, at, at + 15) == token
end

-- A cancelled message holds its exclusive value until its worker calls again. Not a transition: no version, no event.
local function let_go(name, record, retention)
    local state, flags, version, attempts, incarnation, due, _, digest, nonce = read(HEADER, record)
    local _, at = urgency(record, flags, due)
    release(name)
    put(name, pack(HEADER, state, flags - HELD - OWNED, version, attempts, incarnation, due, now + retention, digest, nonce)
        .. sub(record, SECTIONS, at - 1) .. sub(record, after_owner(record, at)))
    timer(2, now + retention, incarnation, version, name)
end

-- Why a worker's call on a message that is not its own to finish is refused.
local function refusal(name, record, token, retention)
    if not record then
        return pack(RESULT, NOT_FOUND, 0, 0, 0)
    end
    local state, flags, version, _, _, due, until_ms = read(HEADER, record)
    local _, at = urgency(record, flags, due)
    if band(flags, HELD) ~= 0 and owner_is(record, flags, at, token) then
        let_go(name, record, retention)
    end
    return pack(RESULT, LOST, state, version, until_ms)
end
