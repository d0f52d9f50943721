#!lua
-- Adds messages to a queue; each is Invisible until its due time, or Pending at once.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _transition _pending
-- ARGV[1]  context (_context)
-- ARGV[2]  nonce I4 of the call (message n has nonce + n), clock guard in ms I4, longest delay in ms I6
-- ARGV[3]… two for each message: head (record flags B, input B, when I6, deadline I8, digest c8, name I2c0, then the
--          sections OVERRIDES and PAIRS) and payload. Input 1: `when` is the due time, not a delay; 2: the deadline is relative.
-- Reply    one string: a result (code B, state B, version I4, due I6) for each: DONE, ALREADY or CONFLICT
-- Errors   STALECONFIG, BLOCKED, TOOFAR with the number of the message; out of memory, refused before it starts
-- Cost     O(log N) for each Pending message and pair, O(1) for each Invisible one
local nonce, guard, furthest = read('>I4I4I6', ARGV[2])
local names, heads = {}, {}
for n = 1, (#ARGV - 2) / 2 do
    local flags, input, when, deadline, digest, name, at = read('>BBI6I8c8I2c0', ARGV[n * 2 + 1])
    if band(input, 1) ~= 0 and when > now + furthest then
        return redis.error_reply('TOOFAR ' .. n)
    end
    heads[n] = { flags, input, when, deadline, digest, at }
    names[n] = name
end
fetch(names)
local kept = redis.call('HMGET', clock, 'seq', 'high')
local sequence, high = tonumber(kept[1]) or 0, tonumber(kept[2])
local first, results = sequence, {}

for n, name in ipairs(names) do
    local flags, input, due, deadline, digest, at = unpack(heads[n])
    local mine, record = (nonce + n) % 4294967296, found[name]
    if record then
        local state, was, version, _, _, due_then, _, digest_then, nonce_then = read(HEADER, record)
        if digest_then ~= digest then
            results[n] = pack(RESULT, CONFLICT, state, version, due_then)
        elseif nonce_then == mine then
            -- The same call, sent again: the first answer.
            local born = band(was, BORN_PENDING) ~= 0 and PENDING or INVISIBLE
            results[n] = pack(RESULT, DONE, born, 1, due_then)
        else
            results[n] = pack(RESULT, ALREADY, state, version, due_then)
        end
    else
        local absolute = band(input, 1) ~= 0
        if not absolute then
            due = now + due
        end
        if band(input, 2) ~= 0 then
            deadline = deadline + now
        end
        -- Clock guard: a due time that only an unconfirmed step of the clock has reached is left to the event process.
        local pending = due <= now and not (absolute and high and due > high + guard)
        local state = INVISIBLE
        if pending then
            state, flags = PENDING, flags + BORN_PENDING
        end
        sequence = sequence + 1
        local sections = sub(ARGV[n * 2 + 1], at)
        local body = band(flags, BODY) ~= 0
        if body then
            redis.call('HSET', bodies, queue_number .. name, ARGV[n * 2 + 2])
        end
        local urgent = band(flags, EXPLICIT) ~= 0
        put(name, pack(HEADER, state, flags, 1, 0, sequence, due, due, digest, mine)
            .. (urgent and pack('>I8', deadline) or '') .. sections .. (body and '' or ARGV[n * 2 + 2]))
        local _, indexed, blob, signature = nil, 0, '', ''
        if band(flags, PAIRS) ~= 0 then
            signature, indexed, blob = pairs_of(sections, flags, 1)
        end
        if pending then
            enter(name, urgent and deadline - BIAS or due, rank_of(flags, sequence), signature, indexed, blob)
        else
            timer(0, due, sequence, 1, name)
            expect(due, 1)
        end
        if history ~= 0 then
            event(name, sequence, 1, 0, state, 0, 64,
                pack('>I6I8I2c0', due, urgent and deadline or due + BIAS, #blob, blob))
        else
            count(state, 1)
        end
        results[n] = pack(RESULT, DONE, state, 1, due)
    end
end
if sequence ~= first then
    redis.call('HSET', clock, 'seq', sequence)
end
commit('')
return table.concat(results)
