#!lua flags=allow-oom
-- Running -> Running, with a later end of the lease, never an earlier one. No new version, no event. No new timer
-- either: when the old timer fires, expire.lua adds a timer for the new end.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _held_leases
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention of cancelled messages in ms I6, new lease in ms from now I4
-- ARGV[4]… tokens and fields of the messages (_held_leases)
-- Reply    one string, with a result for each message: code B (DONE, LOST or NOT_FOUND), state B, version I4, end of
--          the lease I6
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(1) for each message
local retention, lease = read('>I6I4', ARGV[3])
for n = 1, #fields do
    local record = current_record(fields[n], records[n])
    local state, flags, version, attempts, until_ms = 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, until_ms = read(HEAD, record)
    end
    if state ~= RUNNING or not is_owned_by(record, flags, tokens[n]) then
        results[n] = result_of_lost_lease(n, record, retention)
    else
        until_ms = math.max(until_ms, now + lease)
        put(fields[n], pack(HEAD, state, flags, version, attempts, until_ms) .. sub(record, AFTER_HEAD))
        results[n] = pack(RESULT, DONE, state, version, until_ms)
    end
end
return finish_call()
