#!lua flags=allow-oom
-- Completed, Cancelled or Errored -> gone, when the retention is over. The driver calls this script for the due
-- timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound, budget and guard, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    the server's time I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call,
--          3 the record of the message is damaged, so nothing was changed
-- Errors   FENCED, STALECONFIG, STREAMENDED
-- Cost     O(1) for each message
local function parse(record)
    local state, flags, version, attempts, until_ms = read(HEAD, record)
    local fixed = fixed_at(record, flags)
    return state, flags, version, attempts, until_ms, fixed, (read('>I6', record, fixed))
end

for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    if not record then
        answers[n] = FINAL
    else
        -- One damaged record must not fail the call.
        local is_readable, state, flags, version, attempts, until_ms, fixed, incarnation = pcall(parse, record)
        if not is_readable then
            answers[n] = UNREADABLE
        elseif state < COMPLETED or band(flags, HELD) ~= 0 then
            answers[n] = FINAL
        elseif is_stale_timer(n, incarnation, version) then
            answers[n] = FINAL
        elseif until_ms > trusted then
            answers[n] = answer_early_timer(n, 2, until_ms, incarnation, version)
        else
            changed_records[field] = false
            removed_messages[#removed_messages + 1] = field
            if band(flags, BODY) ~= 0 then
                removed_bodies[#removed_bodies + 1] = body_field(field, record, fixed)
            end
            add_event(pack_mark(2, until_ms, incarnation, version + 1, field),
                incarnation, version + 1, state, 0, attempts)
            answers[n] = FINAL
        end
    end
end
local failure = commit('')
if failure then
    return failure
end
return pack('>I6', server_ms) .. table.concat(answers)
