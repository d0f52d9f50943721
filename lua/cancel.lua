#!lua flags=allow-oom
-- Invisible, Pending or Running -> Cancelled.
-- If a message of an exclusive queue was Running, it still holds its exclusive value until its worker's next call for
-- the message or the end of the lease, unless the caller releases the value at once.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake ended call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _ended
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention in ms I6; flag B: 1 releases exclusive values at once, 0 does not
-- ARGV[4]… fields
-- Reply    one string, with a result for each message: code B (DONE, ALREADY, INVALID or NOT_FOUND), state B, version
--          I4, until I6
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(log N) for each message and pair; timers stay on the wheel
local retention, free_at_once = read('>I6B', ARGV[3])
local fields, records = fetch_arguments(4, 0)
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    if not record then
        results[n] = pack(RESULT, NOT_FOUND, 0, 0, 0)
    else
        local state, flags, version, attempts, until_ms = read(HEAD, record)
        local fixed = fixed_at(record, flags)
        local incarnation, due = read('>I6I6', record, fixed)
        local deadline, rank, at = read_order(record, flags, fixed, incarnation, due)
        if state == CANCELLED and band(flags, HELD) ~= 0 and free_at_once ~= 0 then
            free_value(field)
            put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, fixed))
            add_timer(2, now + retention, incarnation, version, field)
            results[n] = pack(RESULT, ALREADY, state, version, now + retention)
        elseif state == CANCELLED then
            results[n] = pack(RESULT, ALREADY, state, version, until_ms)
        elseif state == COMPLETED or state == ERRORED then
            results[n] = pack(RESULT, INVALID, state, version, until_ms)
        else
            local new_flags, timer_kind, new_until = band(flags, EXPLICIT + BORN_PENDING), 2, now + retention
            local keeps_value = state == RUNNING and exclusive and free_at_once == 0
            if state == INVISIBLE then
                add_to_forecast(until_ms, -1)
            elseif state == PENDING then
                remove_pending(field, deadline, rank, read_pairs(record, flags, at))
            elseif keeps_value then
                new_flags, timer_kind, new_until = new_flags + OWNED + HELD, 1, until_ms
            else
                free_value(field)
            end
            if band(flags, BODY) ~= 0 then
                removed_bodies[#removed_bodies + 1] = body_field(field, record, fixed)
            end
            put(field, pack(HEAD, CANCELLED, new_flags, version + 1, attempts, new_until)
                .. sub(record, keeps_value and AFTER_HEAD or fixed, at - 1))
            add_event(add_timer(timer_kind, new_until, incarnation, version + 1, field),
                incarnation, version + 1, state, CANCELLED, attempts)
            add_ended(field)
            results[n] = pack(RESULT, DONE, CANCELLED, version + 1, new_until)
        end
    end
end
local answer = finish_call()
if type(answer) == 'string' then
    announce_ended()
end
return answer
