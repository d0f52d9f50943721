#!lua flags=allow-oom
-- Errored -> Pending. The attempts of the message are counted from zero again.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _require_outbox_room
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]… fields of the messages in `messages`
-- Reply    one string, with a result for each message: code B (DONE, INVALID or NOT_FOUND), state B, version I4, then
--          `until` of the message I6
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL, OUTBOXFULL
-- Cost     O(log N) for each message and pair
local fields, records = fetch_arguments(3, 0)
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    if not record then
        results[n] = pack(RESULT, NOT_FOUND, 0, 0, 0)
    else
        local state, flags, version, _, until_ms = read(HEAD, record)
        if state ~= ERRORED then
            results[n] = pack(RESULT, INVALID, state, version, until_ms)
        else
            local incarnation, due = read('>I6I6', record, AFTER_HEAD)
            local deadline, rank, at = read_order(record, flags, AFTER_HEAD, incarnation, due)
            put(field, pack(HEAD, PENDING, flags, version + 1, 0, now) .. sub(record, AFTER_HEAD))
            add_pending(field, deadline, rank, read_pairs(record, flags, at))
            add_event(pack_mark(0, now, incarnation, version + 1, field),
                incarnation, version + 1, ERRORED, PENDING, 0)
            results[n] = pack(RESULT, DONE, PENDING, version + 1, now)
        end
    end
end
return finish_call()
