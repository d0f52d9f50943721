#!lua flags=allow-oom
-- Running -> Pending, by the holder of the lease, as if the message had not been delivered: the attempt is not counted.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _held_leases
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention of cancelled messages in ms I6
-- ARGV[4]… tokens and fields of the messages (_held_leases)
-- Reply    one string, with a result for each message: code B (DONE, LOST or NOT_FOUND), state B, version I4, then
--          `until` of the message I6
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(log N) for each message and pair
local retention = read('>I6', ARGV[3])
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
        free_value(field)
        add_pending(field, deadline, rank, read_pairs(record, flags, at))
        put(field, pack(HEAD, PENDING, flags - OWNED, version + 1, attempts - 1, now) .. sub(record, fixed))
        add_event(pack_mark(0, now, incarnation, version + 1, field),
            incarnation, version + 1, RUNNING, PENDING, attempts - 1)
        results[n] = pack(RESULT, DONE, PENDING, version + 1, now)
    end
end
return finish_call()
