#!lua flags=allow-oom
-- Invisible, Pending or Running -> Cancelled.
-- If a message of an exclusive queue was Running, it still holds its exclusive value until its worker's next call for
-- the message or the end of the lease, unless the caller releases the value at once.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _session_replay
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention in ms I6; 1 to release exclusive values at once, else 0 B
-- ARGV[4]… fields
-- Reply    one string: a result (code B, state B, version I4, until I6) for each message: DONE, ALREADY, INVALID or
--          NOT_FOUND
-- Errors   STALECONFIG, SESSIONEXPIRED, SESSIONOLD
-- Cost     O(log N) for each message and pair; timers stay on the wheel
local retention, at_once = read('>I6B', ARGV[3])
local fields, records = given(4, 0)
for n = 1, #fields do
    local field = fields[n]
    local record = now_of(field, records[n])
    if not record then
        results[n] = pack(RESULT, NOT_FOUND, 0, 0, 0)
    else
        local state, flags, version, attempts, until_ms = read(HEAD, record)
        local fixed = fixed_at(record, flags)
        local incarnation, due = read('>I6I6', record, fixed)
        local deadline, rank, at = order_in(record, flags, fixed, incarnation, due)
        if state == CANCELLED and band(flags, HELD) ~= 0 and at_once ~= 0 then
            release(field)
            put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, fixed))
            timer(2, now + retention, incarnation, version, field)
            results[n] = pack(RESULT, ALREADY, state, version, now + retention)
        elseif state == CANCELLED then
            results[n] = pack(RESULT, ALREADY, state, version, until_ms)
        elseif state == COMPLETED or state == ERRORED then
            results[n] = pack(RESULT, INVALID, state, version, until_ms)
        else
            local left, kind, when = band(flags, EXPLICIT + BORN_PENDING), 2, now + retention
            local holds = state == RUNNING and exclusive and at_once == 0
            if state == INVISIBLE then
                expect(until_ms, -1)
            elseif state == PENDING then
                leave(field, deadline, rank, pairs_of(record, flags, at))
            elseif holds then
                left, kind, when = left + OWNED + HELD, 1, until_ms
            else
                release(field)
            end
            if band(flags, BODY) ~= 0 then
                gone[#gone + 1] = body_of(field, record, fixed)
            end
            put(field, pack(HEAD, CANCELLED, left, version + 1, attempts, when) .. sub(record, holds and UNOWNED or fixed, at - 1))
            event(timer(kind, when, incarnation, version + 1, field), incarnation, version + 1, state, CANCELLED, attempts)
            results[n] = pack(RESULT, DONE, CANCELLED, version + 1, when)
        end
    end
end
return answer()
