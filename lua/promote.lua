#!lua flags=allow-oom
-- Invisible -> Pending, for messages whose time has come. Called by the event process for due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _fence _leader _transition _pending _fired
-- ARGV[1]  fence I8 I8 (_fence); ARGV[2] bound and entries to touch, ARGV[3] context (_leader); ARGV[4] timers (_fired)
-- Reply    now I6, then a byte for each timer: 0 finally answered, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(log N) for each message and pair
for n, name in ipairs(names) do
    local record = found[name]
    local state, flags, version, attempts, incarnation, due, until_ms, digest, nonce = 0, 0, 0, 0, 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, incarnation, due, until_ms, digest, nonce = read(HEADER, record)
    end
    if state ~= INVISIBLE or stale(n, incarnation, version) then
        answered[n] = FINAL
    elseif until_ms > now then
        answered[n] = not_yet(n, 0, until_ms, incarnation, version)
    else
        local deadline, at = urgency(record, flags, due)
        local signature, indexed, blob = pairs_of(record, flags, at)
        if not spend(1 + indexed) then
            break
        end
        put(name, pack(HEADER, PENDING, flags, version + 1, attempts, incarnation, due, until_ms, digest, nonce) .. sub(record, SECTIONS))
        enter(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
        expect(until_ms, -1)
        record_lateness('late:', now - until_ms)
        event(name, incarnation, version + 1, INVISIBLE, PENDING, attempts, 128, pack('>I6', now - until_ms))
        answered[n] = FINAL
    end
end
commit('')
return pack('>I6', now) .. table.concat(answered)
