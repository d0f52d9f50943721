#!lua
-- Adds messages to a queue. New -> Invisible until the due time, or Pending if the due time is reached.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _staged_bodies _clock _queue_context _transition _ready_indexes
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  clock guard in ms I4, longest delay in ms I6
-- ARGV[3]  for each message: record flags B, input B, when I6. Bits of `input`: 1: `when` is the due time (otherwise a
--          delay); 2: the deadline is relative to now
-- ARGV[4]… two for each message: its field, and its record from the digest on. The record contains a nonce that is
--          unique to the call: if the stored record has the same digest and nonce, the call is a retry. With the flag
--          BODY, the record has no payload (_staged_bodies)
-- Reply    one string: code B and state B for each message. DONE, ALREADY, CONFLICT, or INVALID (due too far ahead)
-- Errors   STALECONFIG, BLOCKED, OUTBOXFULL (bytes in the outbox, limit); out of memory: rejected before the script
--          starts
-- Cost     O(log N) for each Pending message and pair, O(1) for each Invisible one
local guard, furthest = read('>I4I6', ARGV[2])
local heads, fields, most = ARGV[3], {}, (#ARGV - 3) / 2
for n = 1, most do
    fields[n] = ARGV[n * 2 + 2]
end
local records = fetch(fields)
if is_stale() then
    return refuse(STALECONFIG)
end
local kept = call('HMGET', clock, 'seq', 'high', 'outbox')
local sequence, high = tonumber(kept[1]) or 0, tonumber(kept[2])
local full = refusal_of_outbox(tonumber(kept[3]) or 0)
if is_blocked or full then
    -- If all messages of the call exist, as in a retried call, the answer is as usual. If any is new, the whole call
    -- fails.
    for n = 1, most do
        if not records[n] then
            return is_blocked and refuse(QUEUE_BLOCKED) or full
        end
    end
end
local first, results, char, left_over = sequence, {}, string.char, false
local DONE_INVISIBLE, DONE_PENDING = char(DONE, INVISIBLE), char(DONE, PENDING)

for n = 1, most do
    local field, tail = fields[n], ARGV[n * 2 + 3]
    local record, flags, input, due = now_of(field, records[n]), read('>BBI6', heads, n * 8 - 7)
    local absolute = band(input, 1) ~= 0
    if record then
        local state, was = byte(record, 1, 2)
        left_over = left_over or band(flags, BODY) ~= 0
        local at = fixed_at(record, was) + 12
        if sub(record, at, at + 7) ~= sub(tail, 1, 8) then
            results[n] = char(CONFLICT, state)
        elseif sub(record, at + 8, at + 11) == sub(tail, 9, 12) then
            -- A retried call gets its first answer.
            results[n] = band(was, BORN_PENDING) ~= 0 and DONE_PENDING or DONE_INVISIBLE
        else
            results[n] = char(ALREADY, state)
        end
    elseif absolute and due > now + furthest then
        results[n], left_over = char(INVALID, 0), left_over or band(flags, BODY) ~= 0
    else
        if not absolute then
            due = now + due
        end
        -- Clock guard: `high` is the latest time that the driver has trusted. If a due time is reached, but is more
        -- than the guard ahead of `high`, the server's clock may have jumped. The message then stays Invisible until
        -- the driver promotes it. A delay counts from the server's clock, so it needs no guard.
        local state = due <= now and not (absolute and high and due > high + guard) and PENDING or INVISIBLE
        sequence = sequence + 1
        local rank, deadline, signature, indexed, blob = sequence + NO_DEADLINE_OF_ITS_OWN, due + BIAS, '', 0, ''
        if band(flags, ANY_SECTION) ~= 0 then
            local explicit = band(flags, EXPLICIT) ~= 0
            if explicit then
                rank, deadline = sequence, read('>I8', tail, 13)
                if band(input, 2) ~= 0 then
                    deadline = deadline + now
                    tail = sub(tail, 1, 12) .. pack('>I8', deadline) .. sub(tail, 21)
                end
            end
            signature, indexed, blob = pairs_of(tail, flags, explicit and 21 or 13)
        end
        put(field, pack(WHOLE, state, state == PENDING and flags + BORN_PENDING or flags, 1, 0, due, sequence, due) .. tail)
        local marked
        if state == PENDING then
            marked = mark(0, due, sequence, 1, field)
            enter(field, deadline - BIAS, rank, signature, indexed, blob)
        else
            marked = timer(0, due, sequence, 1, field)
            expect(due, 1)
        end
        -- If a message has neither an explicit deadline nor metadata, `marked` contains all data of the event.
        if band(flags, EXPLICIT + PAIRS) == 0 then
            event(marked, sequence, 1, 0, state, 0)
        else
            full_event(marked, sequence, 1, 0, state, 0, due, deadline, blob)
        end
        results[n] = state == PENDING and DONE_PENDING or DONE_INVISIBLE
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
