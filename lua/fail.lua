#!lua flags=allow-oom
-- Running -> Invisible for a back-off, or Pending, or Errored where its attempts are used up; by the holder of the lease.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _session _transition _pending _lease
-- ARGV[1]  context (_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  retention of cancelled I6, of errored I6, the queue's max_attempts I2, error text I2c0, then the back-off I6 of each message
-- ARGV[4]… token c16 .. name, for each message
-- Reply    one string: a result (code B, state B, version I4, until I6) for each: DONE, LOST or NOT_FOUND
-- Errors   STALECONFIG, SESSIONEXPIRED, SESSIONOLD
-- Cost     O(log N) for each message
if replayed then
    return replayed
end
fetch(names)
local retention, errored_retention, default_attempts, text, delays_at = read('>I6I6I2I2c0', ARGV[3])
local results = {}
for n, name in ipairs(names) do
    local record, token = found[name], tokens[n]
    local state, flags, version, attempts, incarnation, due, digest, nonce, at, deadline, _
    if record then
        state, flags, version, attempts, incarnation, due, _, digest, nonce = read(HEADER, record)
        deadline, at = urgency(record, flags, due)
    end
    if state ~= RUNNING or not owner_is(record, flags, at, token) then
        results[n] = refusal(name, record, token, retention)
    else
        local delay = read('>I6', ARGV[3], delays_at + (n - 1) * 6)
        local head, rest = sub(record, SECTIONS, at - 1), sub(record, after_owner(record, at))
        local overrides, most = '', default_attempts
        if band(flags, OVERRIDES) ~= 0 then
            overrides, rest = sub(rest, 1, 6), sub(rest, 7)
            local own = read('>I2', overrides, 5)
            most = own > 0 and own or most
        end
        if band(flags, ERROR) ~= 0 then
            rest, flags = sub(rest, 3 + read('>I2', rest)), flags - ERROR
        end
        if text ~= '' then
            overrides, flags = overrides .. pack('>I2c0', #text, text), flags + ERROR
        end
        flags = flags - OWNED
        local to, when = PENDING, now
        if attempts >= most then
            to, when = ERRORED, now + errored_retention
        elseif delay > 0 then
            to, when = INVISIBLE, now + delay
        end
        local changed = pack(HEADER, to, flags, version + 1, attempts, incarnation, due, when, digest, nonce) .. head .. overrides .. rest
        put(name, changed)
        release(name)
        if to == PENDING then
            local signature, indexed, blob = pairs_of(changed, flags, at)
            enter(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
        else
            timer(to == ERRORED and 2 or 0, when, incarnation, version + 1, name)
            if to == INVISIBLE then
                expect(when, 1)
            end
        end
        event(name, incarnation, version + 1, RUNNING, to, attempts, 0, '')
        results[n] = pack(RESULT, DONE, to, version + 1, when)
    end
end
local answer = table.concat(results)
remember(answer)
commit('')
return answer
