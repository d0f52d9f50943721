#!lua flags=allow-oom
-- Invisible -> Pending, for messages that are due. The driver calls this script for the due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _ready_indexes _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound, budget and guard, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    the server's time I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call,
--          3 the record of the message is damaged, so nothing was changed
-- Errors   FENCED, STALECONFIG, STREAMENDED
-- Cost     O(log N) for each message and pair
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    if not record or byte(record) ~= INVISIBLE then
        answers[n] = FINAL
    else
        -- One damaged record must not fail the call, which has written indexes of other messages already.
        local is_readable, _, flags, version, attempts, until_ms, fixed, incarnation, _,
            deadline, rank, signature, pair_count, packed_pairs = pcall(parse_record, field, record)
        if not is_readable or fixed ~= AFTER_HEAD then
            answers[n] = UNREADABLE
        elseif is_stale_timer(n, incarnation, version) then
            answers[n] = FINAL
        elseif until_ms > trusted then
            answers[n] = answer_early_timer(n, 0, until_ms, incarnation, version)
        else
            entries_left = entries_left - WEIGHT * (1 + pair_count)
            if entries_left < 0 and n > 1 then
                break
            end
            put(field, pack('>BBI4', PENDING, flags, version + 1) .. sub(record, 7))
            add_pending(field, deadline, rank, signature, pair_count, packed_pairs)
            add_to_forecast(until_ms, -1)
            local late_ms = now - until_ms
            late_histogram[late_ms] = (late_histogram[late_ms] or 0) + 1
            add_event(pack_mark(0, until_ms, incarnation, version + 1, field),
                incarnation, version + 1, INVISIBLE, PENDING, attempts, late_ms)
            answers[n] = FINAL
        end
    end
end
local failure = commit('')
if failure then
    return failure
end
return pack('>I6', server_ms) .. table.concat(answers)
