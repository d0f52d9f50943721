#!lua
-- Adds messages to a queue; each is Invisible until its due time, or Pending at once.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _words _record _staged _clock _context _transition _pending
-- ARGV[1]  context (_context)
-- ARGV[2]  nonce I4 of the call (message n has nonce + n), clock guard in ms I4, longest delay in ms I6
-- ARGV[3]… two for each message: head (record flags B, input B, when I6, deadline I8, digest c8, field I2c0, then the
--          sections OVERRIDES and PAIRS) and payload, empty with BODY (_staged). Input 1: `when` is the due time, not a delay; 2: the deadline is relative.
-- Reply    one string: code B and state B for each message; DONE, ALREADY, CONFLICT, or INVALID: due later than may be
-- Errors   STALECONFIG, BLOCKED; out of memory, refused before it starts
-- Cost     O(log N) for each Pending message and pair, O(1) for each Invisible one
local nonce, guard, furthest = read('>I4I4I6', ARGV[2])
local fields, most = {}, (#ARGV - 2) / 2
for n = 1, most do
    fields[n] = read('>I2c0', ARGV[n * 2 + 1], 25)
end
local records = fetch(fields)
local kept = call('HMGET', clock, 'seq', 'high')
local sequence, high = tonumber(kept[1]) or 0, tonumber(kept[2])
local first, results, char, left_over = sequence, {}, string.char, false

for n = 1, most do
    local field, head = fields[n], ARGV[n * 2 + 1]
    local mine, record = (nonce + n) % 4294967296, now_of(field, records[n])
    if record then
        local state, was = byte(record, 1, 2)
        left_over = left_over or band(byte(head), BODY) ~= 0
        local digest_then, nonce_then = read('>c8I4', record, fixed_at(record, was) + 12)
        if digest_then ~= sub(head, 17, 24) then
            results[n] = char(CONFLICT, state)
        elseif nonce_then == mine then
            -- The same call, sent again: the first answer.
            results[n] = char(DONE, band(was, BORN_PENDING) ~= 0 and PENDING or INVISIBLE)
        else
            results[n] = char(ALREADY, state)
        end
    elseif band(byte(head, 2), 1) ~= 0 and read('>I6', head, 3) > now + furthest then
        results[n], left_over = char(INVALID, 0), left_over or band(byte(head), BODY) ~= 0
    else
        local flags, input, due, deadline, digest = read('>BBI6I8c8', head)
        local absolute = band(input, 1) ~= 0
        if not absolute then
            due = now + due
        end
        -- Clock guard: a due time that only an unconfirmed step of the clock has reached is left to the event process.
        local state = due <= now and not (absolute and high and due > high + guard) and PENDING or INVISIBLE
        sequence = sequence + 1
        local explicit = ''
        if band(flags, EXPLICIT) ~= 0 then
            if band(input, 2) ~= 0 then
                deadline = deadline + now
            end
            explicit = pack('>I8', deadline)
        else
            deadline = due + BIAS
        end
        local sections = sub(head, 27 + #field)
        put(field, pack('>BBI4I2I6I6I6c0I4', state, state == PENDING and flags + BORN_PENDING or flags, 1, 0, due, sequence,
            due, digest, mine) .. explicit .. sections .. ARGV[n * 2 + 2])
        local signature, indexed, blob = pairs_of(sections, flags, 1)
        if state == PENDING then
            enter(field, deadline - BIAS, band(flags, EXPLICIT) ~= 0 and sequence or sequence + NO_DEADLINE_OF_ITS_OWN, signature, indexed, blob)
        else
            timer(0, due, sequence, 1, field)
            expect(due, 1)
        end
        full_event(field, sequence, 1, 0, state, 0, due, deadline, blob)
        results[n] = char(DONE, state)
    end
end
if sequence ~= first then
    call('HSET', clock, 'seq', sequence)
end
commit('')
if left_over then
    unstage()
end
return table.concat(results)
