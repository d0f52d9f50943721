#!lua flags=allow-oom
-- Invisible -> Pending, for messages that are due. The driver calls this script for the due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _ready_indexes _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound and budget, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    now I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(log N) for each message and pair
for n = 1, #fields do
    local field = fields[n]
    local record = now_of(field, records[n])
    if not record or byte(record) ~= INVISIBLE then
        answered[n] = FINAL
    else
        local _, flags, version, attempts, until_ms, incarnation, due = read(WHOLE, record)
        if stale(n, incarnation, version) then
            answered[n] = FINAL
        elseif until_ms > now then
            answered[n] = not_yet(n, 0, until_ms, incarnation, version)
        else
            local deadline, rank, signature, indexed, blob = sections_of(record, flags, UNOWNED, incarnation, due)
            entries_left = entries_left - WEIGHT * (1 + indexed)
            if entries_left < 0 and n > 1 then
                break
            end
            put(field, pack('>BBI4', PENDING, flags, version + 1) .. sub(record, 7))
            enter(field, deadline, rank, signature, indexed, blob)
            expect(until_ms, -1)
            local after = now - until_ms
            late[after] = (late[after] or 0) + 1
            event(mark(0, until_ms, incarnation, version + 1, field), incarnation, version + 1, INVISIBLE, PENDING, attempts, after)
            answered[n] = FINAL
        end
    end
end
commit('')
return pack('>I6', now) .. table.concat(answered)
