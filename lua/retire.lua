#!lua flags=allow-oom
-- Completed, Cancelled or Errored -> gone, when the retention is over. The driver calls this script for the due
-- timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound and budget, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    now I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(1) for each message
local retired = {}
for n = 1, #fields do
    local field = fields[n]
    local record = now_of(field, records[n])
    local state, flags, version, attempts, until_ms = 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, until_ms = read(HEAD, record)
    end
    if state < COMPLETED or band(flags, HELD) ~= 0 then
        answered[n] = FINAL
    else
        local fixed = fixed_at(record, flags)
        local incarnation = read('>I6', record, fixed)
        if stale(n, incarnation, version) then
            answered[n] = FINAL
        elseif until_ms > now then
            answered[n] = not_yet(n, 2, until_ms, incarnation, version)
        else
            changed[field] = false
            retired[#retired + 1] = field
            if band(flags, BODY) ~= 0 then
                gone[#gone + 1] = body_of(field, record, fixed)
            end
            event(mark(2, until_ms, incarnation, version + 1, field), incarnation, version + 1, state, 0, attempts)
            answered[n] = FINAL
        end
    end
end
if #retired > 0 then
    send('HDEL', messages, retired)
end
commit('')
return pack('>I6', now) .. table.concat(answered)
