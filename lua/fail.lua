#!lua flags=allow-oom
-- Fails attempts, by the holder of the lease. Running -> Errored if the attempts are used up or the failure is final,
-- otherwise Invisible for the back-off, or Pending if the back-off is zero.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake ended call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _held_leases _ended
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention of cancelled messages in ms I6, of errored messages in ms I6, the queue's max_attempts I2 (0: the
--          failure is final), error text I2c0, then the back-off of each message in ms I6
-- ARGV[4]… tokens and fields of the messages (_held_leases)
-- Reply    one string, with a result for each message: code B (DONE, LOST or NOT_FOUND), state B, version I4, then
--          `until` of the message I6
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(log N) for each message
local retention, errored_retention, default_attempts, text, delays_at = read('>I6I6I2I2c0', ARGV[3])
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    local state, flags, version, attempts = 0, 0, 0, 0
    if record then
        state, flags, version, attempts = read(HEAD, record)
    end
    if state ~= RUNNING or not is_owned_by(record, flags, tokens[n]) then
        results[n] = result_of_lost_lease(n, record, retention)
    else
        local fixed = fixed_at(record, flags)
        local incarnation, due = read('>I6I6', record, fixed)
        local deadline, rank, at = read_order(record, flags, fixed, incarnation, due)
        local delay = read('>I6', ARGV[3], delays_at + (n - 1) * 6)
        local rest, overrides, max_attempts = sub(record, at), '', default_attempts
        if band(flags, OVERRIDES) ~= 0 then
            overrides, rest = sub(rest, 1, 6), sub(rest, 7)
            local own_max_attempts = read('>I2', overrides, 5)
            max_attempts = own_max_attempts > 0 and max_attempts > 0 and own_max_attempts or max_attempts
        end
        if band(flags, ERROR) ~= 0 then
            rest, flags = sub(rest, 3 + read('>I2', rest)), flags - ERROR
        end
        if text ~= '' then
            overrides, flags = overrides .. pack('>I2c0', #text, text), flags + ERROR
        end
        flags = flags - OWNED
        local to, new_until = PENDING, now
        if attempts >= max_attempts then
            to, new_until = ERRORED, now + errored_retention
        elseif delay > 0 then
            to, new_until = INVISIBLE, now + delay
        end
        local new_record = pack(HEAD, to, flags, version + 1, attempts, new_until)
            .. sub(record, fixed, at - 1) .. overrides .. rest
        put(field, new_record)
        free_value(field)
        if to == PENDING then
            add_pending(field, deadline, rank, read_pairs(new_record, flags, AFTER_HEAD + at - fixed))
        elseif to == INVISIBLE then
            add_to_forecast(new_until, 1)
        end
        local kind = to == ERRORED and 2 or 0
        local mark = (to == PENDING and pack_mark or add_timer)(kind, new_until, incarnation, version + 1, field)
        add_event(mark, incarnation, version + 1, RUNNING, to, attempts)
        if to == ERRORED then
            add_ended(field)
        end
        results[n] = pack(RESULT, DONE, to, version + 1, new_until)
    end
end
local answer = finish_call()
if type(answer) == 'string' then
    announce_ended()
end
return answer
