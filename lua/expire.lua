#!lua flags=allow-oom
-- Running -> Pending when the lease has ended, or Errored if its attempts are used up. If a message was cancelled while
-- it ran, it may still hold its exclusive value (cancel.lua). Then this script frees the value at the end of the lease.
-- The driver calls this script for the due timers of one queue.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake ended
-- INCLUDE: _constants _record _clock _require_fence _driver_context _transition _ready_indexes _fired_timers _ended
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  bound, budget and guard, ARGV[3] queue (_driver_context)
-- ARGV[4]  timers (_fired_timers)
-- Reply    the server's time I6, then a byte for each timer: 0 done, 1 not yet due, 2 not handled in this call,
--          3 the record of the message is damaged, so nothing was changed
-- Errors   FENCED, STALECONFIG, STREAMENDED
-- Cost     O(log N) for each message and pair

-- Returns the error text of a message whose last lease expired: the number of the attempt, its worker, and the error
-- text of the previous failure. At most 1 KiB.
local function error_of_last_lease(worker, attempts, max_attempts, failure)
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

-- Returns the record of an Errored message from `at`, the position of OVERRIDES. Fails if the record is damaged.
local function errored_sections(record, flags, at, attempts, max_attempts)
    local worker, failure, error_at = read('>Bc0', record, 31), '', band(flags, OVERRIDES) ~= 0 and at + 6 or at
    local rest_at = error_at
    if band(flags, ERROR) ~= 0 then
        failure, rest_at = read('>I2c0', record, error_at)
    end
    local text = error_of_last_lease(worker, attempts, max_attempts, failure)
    return sub(record, at, error_at - 1) .. pack('>I2c0', #text, text) .. sub(record, rest_at)
end

-- Returns only the state and the flags if the message waits for no end of a lease. Fails if the record is damaged.
local function parse(field, record)
    local state, flags, version, attempts, until_ms = read(HEAD, record)
    if state ~= RUNNING and band(flags, HELD) == 0 then
        return state, flags
    end
    if exclusive then
        read('>I2c0', field, 3)
    end
    local fixed, own_attempts = fixed_at(record, flags), 0
    local incarnation, due = read('>I6I6', record, fixed)
    local deadline, rank, signature, pair_count, packed_pairs, at =
        read_sections(record, flags, fixed, incarnation, due)
    if band(flags, OVERRIDES) ~= 0 then
        own_attempts = read('>I2', record, at + 4)
    end
    return state, flags, version, attempts, until_ms, fixed, incarnation,
        deadline, rank, signature, pair_count, packed_pairs, at, own_attempts
end

for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    if not record then
        answers[n] = FINAL
    else
        -- One damaged record must not fail the call, which has written indexes of other messages already.
        local is_readable, state, flags, version, attempts, until_ms, fixed, incarnation,
            deadline, rank, signature, pair_count, packed_pairs, at, own_attempts = pcall(parse, field, record)
        local holds_value = is_readable and band(flags, HELD) ~= 0
        if not is_readable then
            answers[n] = UNREADABLE
        elseif state ~= RUNNING and not holds_value then
            answers[n] = FINAL
        elseif is_stale_timer(n, incarnation, version) then
            answers[n] = FINAL
        elseif until_ms > trusted then
            answers[n] = answer_early_timer(n, 1, until_ms, incarnation, version)
        elseif holds_value then
            put(field, pack(HEAD, state, flags - HELD - OWNED, version, attempts, now + retention) .. sub(record, fixed))
            free_value(field)
            add_timer(2, now + retention, incarnation, version, field)
            answers[n] = FINAL
        else
            entries_left = entries_left - WEIGHT * (1 + pair_count)
            if entries_left < 0 and n > 1 then
                break
            end
            local to, new_until, new_flags, sections = PENDING, now, flags - band(flags, OWNED), nil
            local max_attempts = own_attempts > 0 and own_attempts or default_attempts
            if attempts >= max_attempts then
                to, new_until, new_flags = ERRORED, now + errored_retention, new_flags + ERROR - band(flags, ERROR)
                is_readable, sections = pcall(errored_sections, record, flags, at, attempts, max_attempts)
                sections = is_readable and sub(record, fixed, at - 1) .. sections
            else
                sections = sub(record, fixed)
            end
            if is_readable then
                put(field, pack(HEAD, to, new_flags, version + 1, attempts, new_until) .. sections)
                free_value(field)
                if to == PENDING then
                    add_pending(field, deadline, rank, signature, pair_count, packed_pairs)
                end
                local mark = (to == PENDING and pack_mark or add_timer)(2, new_until, incarnation, version + 1, field)
                add_event(mark, incarnation, version + 1, RUNNING, to, attempts)
                if to == ERRORED then
                    add_ended(field)
                end
            end
            answers[n] = is_readable and FINAL or UNREADABLE
        end
    end
end
local failure = commit('')
if failure then
    return failure
end
announce_ended()
return pack('>I6', server_ms) .. table.concat(answers)
