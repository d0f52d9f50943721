#!lua flags=allow-oom
-- Running -> Pending when the lease has ended, or Errored if its attempts are used up. If a message was cancelled while
-- it ran, it may still hold its exclusive value (cancel.lua). Then this script frees the value at the end of the lease.
-- The driver calls this script for the due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _ready_indexes _fired_timers
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound, budget and guard, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    the server's time I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call
-- Errors   FENCED, STALECONFIG, STREAMENDED
-- Cost     O(log N) for each message and pair

-- Returns the error text of a message whose last lease expired: the number of the attempt, its worker, and the error
-- text of the previous failure. At most 1 KiB.
local function error_of_last_lease(record, attempts, max_attempts, failure)
    local worker = read('>Bc0', record, 31)
    local text = 'the lease of attempt ' .. attempts .. ' of ' .. max_attempts .. ' ended'
    text = worker ~= '' and text .. '; worker ' .. worker or text
    text = failure ~= '' and text .. '; the failure before: ' .. failure or text
    local size = 1024
    -- Does not cut a UTF-8 character.
    while #text > size and band(byte(text, size + 1), 192) == 128 do
        size = size - 1
    end
    return sub(text, 1, size)
end

for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    local state, flags, version, attempts, until_ms = 0, 0, 0, 0, 0
    if record then
        state, flags, version, attempts, until_ms = read(HEAD, record)
    end
    local holds_value = band(flags, HELD) ~= 0
    if state ~= RUNNING and not holds_value then
        answers[n] = FINAL
    else
        local fixed = fixed_at(record, flags)
        local incarnation, due = read('>I6I6', record, fixed)
        if is_stale_timer(n, incarnation, version) then
            answers[n] = FINAL
        elseif until_ms > trusted then
            answers[n] = answer_early_timer(n, 1, until_ms, incarnation, version)
        elseif holds_value then
            put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, fixed))
            free_value(field)
            add_timer(2, now + retention, incarnation, version, field)
            answers[n] = FINAL
        else
            local deadline, rank, signature, pair_count, packed_pairs, at =
                read_sections(record, flags, fixed, incarnation, due)
            entries_left = entries_left - WEIGHT * (1 + pair_count)
            if entries_left < 0 and n > 1 then
                break
            end
            local rest, max_attempts = sub(record, at), 0
            flags = flags - OWNED
            if band(flags, OVERRIDES) ~= 0 then
                max_attempts = read('>I2', rest, 5)
            end
            max_attempts = max_attempts > 0 and max_attempts or default_attempts
            local to, new_until = PENDING, now
            if attempts >= max_attempts then
                to, new_until = ERRORED, now + errored_retention
                local section_end, failure = band(flags, OVERRIDES) ~= 0 and 6 or 0, ''
                local overrides = sub(rest, 1, section_end)
                if band(flags, ERROR) ~= 0 then
                    failure, section_end = read('>I2c0', rest, section_end + 1)
                    section_end = section_end - 1
                else
                    flags = flags + ERROR
                end
                local text = error_of_last_lease(record, attempts, max_attempts, failure)
                rest = overrides .. pack('>I2c0', #text, text) .. sub(rest, section_end + 1)
            end
            put(field, pack(HEAD, to, flags, version + 1, attempts, new_until) .. sub(record, fixed, at - 1) .. rest)
            free_value(field)
            if to == PENDING then
                add_pending(field, deadline, rank, signature, pair_count, packed_pairs)
            end
            local mark = (to == PENDING and pack_mark or add_timer)(2, new_until, incarnation, version + 1, field)
            add_event(mark, incarnation, version + 1, RUNNING, to, attempts)
            answers[n] = FINAL
        end
    end
end
local failure = commit('')
if failure then
    return failure
end
return pack('>I6', server_ms) .. table.concat(answers)
