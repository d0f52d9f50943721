#!lua flags=allow-oom
-- Completed, Cancelled or Errored -> gone, once the retention is over. Called by the event process for due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _fence _leader _transition _fired
-- ARGV[1]  fence I8 I8 (_fence); ARGV[2] bound and entries to touch, ARGV[3] context (_leader); ARGV[4] timers (_fired)
-- Reply    now I6, then a byte for each timer: 0 finally answered, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(1) for each message
local retired = {}
for n, name in ipairs(names) do
    local record = found[name]
    local state, flags, version, attempts, incarnation, _, until_ms = 0, 0, 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, incarnation, _, until_ms = read(HEADER, record)
    end
    if state < COMPLETED or band(flags, HELD) ~= 0 or stale(n, incarnation, version) then
        answered[n] = FINAL
    elseif until_ms > now then
        answered[n] = not_yet(n, 2, until_ms, incarnation, version)
    elseif not spend(1) then
        break
    else
        found[name] = false
        retired[#retired + 1] = queue_number .. name
        if band(flags, BODY) ~= 0 then
            drop_body(name)
        end
        event(name, incarnation, version + 1, state, 0, attempts, 0, '')
        answered[n] = FINAL
    end
end
if #retired > 0 then
    send('HDEL', messages, retired)
end
commit('')
return pack('>I6', now) .. table.concat(answered)
