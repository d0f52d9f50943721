#!lua flags=allow-oom
-- Running -> Pending when the lease has ended, or Errored if its attempts are used up. A cancelled message that still
-- holds its exclusive value frees the value. The driver calls this script for the due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _ready_indexes _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound and budget, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    now I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG
-- Cost     O(log N) for each message and pair

-- Returns the error text of a message whose last lease expired: the number of the attempt, its worker, and the error
-- text of the last failure before. At most 1 KiB.
local function of_last_lease(record, attempts, most, failure)
    local worker = read('>Bc0', record, 31)
    local text = 'the lease of attempt ' .. attempts .. ' of ' .. most .. ' ended'
    text = worker ~= '' and text .. '; worker ' .. worker or text
    text = failure ~= '' and text .. '; the failure before: ' .. failure or text
    local cut = 1024
    -- Does not cut a UTF-8 character.
    while #text > cut and band(byte(text, cut + 1), 192) == 128 do
        cut = cut - 1
    end
    return sub(text, 1, cut)
end

for n = 1, #fields do
    local field = fields[n]
    local record = now_of(field, records[n])
    local state, flags, version, attempts, until_ms = 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, until_ms = read(HEAD, record)
    end
    local held = band(flags, HELD) ~= 0
    if state ~= RUNNING and not held then
        answered[n] = FINAL
    else
        local fixed = fixed_at(record, flags)
        local incarnation, due = read('>I6I6', record, fixed)
        if stale(n, incarnation, version) then
            answered[n] = FINAL
        elseif until_ms > now then
            answered[n] = not_yet(n, 1, until_ms, incarnation, version)
        elseif held then
            put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, fixed))
            release(field)
            timer(2, now + retention, incarnation, version, field)
            answered[n] = FINAL
        else
            local deadline, rank, signature, indexed, blob, at = sections_of(record, flags, fixed, incarnation, due)
            entries_left = entries_left - WEIGHT * (1 + indexed)
            if entries_left < 0 and n > 1 then
                break
            end
            local rest, most = sub(record, at), 0
            flags = flags - OWNED
            if band(flags, OVERRIDES) ~= 0 then
                most = read('>I2', rest, 5)
            end
            most = most > 0 and most or default_attempts
            local to, when = PENDING, now
            if attempts >= most then
                to, when = ERRORED, now + errored_retention
                local split, failure = band(flags, OVERRIDES) ~= 0 and 6 or 0, ''
                local overrides = sub(rest, 1, split)
                if band(flags, ERROR) ~= 0 then
                    failure, split = read('>I2c0', rest, split + 1)
                    split = split - 1
                else
                    flags = flags + ERROR
                end
                local text = of_last_lease(record, attempts, most, failure)
                rest = overrides .. pack('>I2c0', #text, text) .. sub(rest, split + 1)
            end
            put(field, pack(HEAD, to, flags, version + 1, attempts, when) .. sub(record, fixed, at - 1) .. rest)
            release(field)
            if to == PENDING then
                enter(field, deadline, rank, signature, indexed, blob)
            end
            local marked = (to == PENDING and mark or timer)(2, when, incarnation, version + 1, field)
            event(marked, incarnation, version + 1, RUNNING, to, attempts)
            answered[n] = FINAL
        end
    end
end
commit('')
return pack('>I6', now) .. table.concat(answered)
