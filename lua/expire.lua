#!lua flags=allow-oom
-- Running -> Pending where a lease is over, or Errored where the attempts are used up. A cancelled message that still held
-- its exclusive value lets go of it. Called by the event process for due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _fence _leader _transition _pending _fired
-- ARGV[1]  fence I8 I8 (_fence); ARGV[2] bound and entries to touch, ARGV[3] context (_leader); ARGV[4] timers (_fired)
-- Reply    now I6, then a byte for each timer: 0 finally answered, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(log N) for each message and pair
local LEASE_EXPIRED = 'lease expired'
for n, name in ipairs(names) do
    local record = found[name]
    local state, flags, version, attempts, incarnation, due, until_ms, digest, nonce = 0, 0, 0, 0, 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, incarnation, due, until_ms, digest, nonce = read(HEADER, record)
    end
    local held = state == CANCELLED and band(flags, HELD) ~= 0
    if (state ~= RUNNING and not held) or stale(n, incarnation, version) then
        answered[n] = FINAL
    elseif until_ms > now then
        answered[n] = not_yet(n, 1, until_ms, incarnation, version)
    else
        local deadline, at = urgency(record, flags, due)
        local head, rest = sub(record, SECTIONS, at - 1), sub(record, at + 17 + byte(record, at + 16))
        flags = flags - OWNED
        if held then
            flags = flags - HELD
            put(name, pack(HEADER, state, flags, version, attempts, incarnation, due, now + retention, digest, nonce) .. head .. rest)
            release(name)
            timer(2, now + retention, incarnation, version, name)
            answered[n] = FINAL
        else
            local signature, indexed, blob = pairs_of(rest, flags, 1)
            if not spend(1 + indexed) then
                break
            end
            local most = band(flags, OVERRIDES) ~= 0 and read('>I2', rest, 5) or 0
            most = most > 0 and most or default_attempts
            local to, when = PENDING, now
            if attempts >= most then
                to, when = ERRORED, now + errored_retention
                if band(flags, ERROR) == 0 then
                    local split = band(flags, OVERRIDES) ~= 0 and 6 or 0
                    flags, rest = flags + ERROR, sub(rest, 1, split) .. pack('>I2c0', #LEASE_EXPIRED, LEASE_EXPIRED) .. sub(rest, split + 1)
                end
            end
            put(name, pack(HEADER, to, flags, version + 1, attempts, incarnation, due, when, digest, nonce) .. head .. rest)
            release(name)
            if to == PENDING then
                enter(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
            else
                timer(2, when, incarnation, version + 1, name)
            end
            event(name, incarnation, version + 1, RUNNING, to, attempts, 0, '')
            answered[n] = FINAL
        end
    end
end
commit('')
return pack('>I6', now) .. table.concat(answered)
