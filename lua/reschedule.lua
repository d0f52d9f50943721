#!lua
-- Invisible or Pending -> Invisible or Pending, with a new due time, a new deadline, or both.
-- The timer of the old due time stays on the wheel until it fires, so each call can add a timer for the same message.
-- The server therefore rejects this script when its memory is full.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _require_outbox_room
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  clock guard in ms I4, longest delay in ms I6
-- ARGV[4]… for each message: input B, when I6, deadline I8 (+ 2^52), field. Bits of `input`: 1: `when` is the due time
--          (otherwise a delay); 2: the deadline is relative to now; 4: there is a new due time; 8: there is a new
--          deadline
-- Reply    one string, with a result for each message: code B (DONE, INVALID or NOT_FOUND), state B, version I4, then
--          I6: the due time (DONE), `until` of the record (INVALID) or 0
-- Errors   STALECONFIG, STREAMENDED, TOOFAR, SESSIONEXPIRED, SESSIONOLD, OTHERCALL, OUTBOXFULL
-- Cost     O(log N) for each Pending message and pair
-- For exclusive queues, _ready_indexes has tested this.
local refusal = not exclusive and refusal_of_streams()
if refusal then
    return refusal
end
local guard, longest_delay = read('>I4I6', ARGV[3])
local high_water_mark = tonumber(call('HGET', clock, 'high') or nil)
for n = 4, #ARGV do
    local input, when = read('>BI6', ARGV[n])
    if band(input, 5) == 5 and when > now + longest_delay then
        return redis.error_reply('TOOFAR ' .. n - 3)
    end
end
local fields, records = fetch_arguments(4, 15)
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    local state, flags, version, attempts, until_ms = 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, until_ms = read(HEAD, record)
    end
    if not record then
        results[n] = pack(RESULT, NOT_FOUND, 0, 0, 0)
    elseif state ~= INVISIBLE and state ~= PENDING then
        results[n] = pack(RESULT, INVALID, state, version, until_ms)
    else
        local input, when, new_deadline = read('>BI6I8', ARGV[n + 3])
        local incarnation, due = read('>I6I6', record, AFTER_HEAD)
        local deadline, rank, signature, pair_count, packed_pairs, at =
            read_sections(record, flags, AFTER_HEAD, incarnation, due)
        if state == PENDING then
            remove_pending(field, deadline, rank, signature, pair_count, packed_pairs)
        else
            add_to_forecast(until_ms, -1)
        end
        -- Without a new due time, the message becomes ready at the same time as before, which may be the end of a
        -- back-off.
        local ready_at, is_absolute = until_ms, band(input, 1) ~= 0
        if band(input, 4) ~= 0 then
            due = is_absolute and when or now + when
            ready_at = due
        end
        if band(input, 8) ~= 0 then
            deadline = new_deadline - BIAS + (band(input, 2) ~= 0 and now or 0)
            flags, rank = band(flags, 255 - EXPLICIT) + EXPLICIT, incarnation
        elseif band(flags, EXPLICIT) == 0 then
            deadline = due
        end
        local explicit_deadline = band(flags, EXPLICIT) ~= 0 and pack('>I8', deadline + BIAS) or ''
        -- A step of the server's clock must not make the message ready: neither by its new absolute due time nor by the
        -- time at which an Invisible message becomes ready already.
        local is_guarded = (band(input, 5) == 5 or (band(input, 4) == 0 and state == INVISIBLE))
            and high_water_mark and ready_at > high_water_mark + guard
        local to = ready_at <= now and not is_guarded and PENDING or INVISIBLE
        put(field, pack('>BBI4I2I6I6I6', to, flags, version + 1, attempts, ready_at, incarnation, due)
            .. sub(record, AFTER_HEAD + 12, AFTER_HEAD + 23) .. explicit_deadline .. sub(record, at))
        if to == PENDING then
            add_pending(field, deadline, rank, signature, pair_count, packed_pairs)
        else
            add_to_forecast(ready_at, 1)
        end
        write_indexes()
        local mark = (to == PENDING and pack_mark or add_timer)(0, ready_at, incarnation, version + 1, field)
        add_full_event(mark, incarnation, version + 1, state, to, attempts, due, deadline + BIAS, packed_pairs)
        results[n] = pack(RESULT, DONE, to, version + 1, due)
    end
end
return finish_call()
