#!lua
-- Adds messages to a queue. New -> Invisible until the due time, or Pending if the due time is reached.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _staged_bodies _clock _queue_context _transition _ready_indexes
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  clock guard in ms I4, longest delay in ms I6
-- ARGV[3]  for each message: record flags B, input B, when I6. Bits of `input`: 1: `when` is the due time (otherwise a
--          delay); 2: the deadline is relative to now
-- ARGV[4]… two for each message: its field, and its record from the digest on. The record contains a nonce that is
--          unique to the call: if the stored record has the same digest and nonce, the call is a retry. With the flag
--          BODY, the record has no payload (_staged_bodies)
-- Reply    one string: code B and state B for each message. DONE, ALREADY, CONFLICT, or INVALID (due too far ahead)
-- Errors   STALECONFIG, STREAMENDED, BLOCKED, OUTBOXFULL (bytes in the outbox, limit); out of memory: rejected before
--          the script starts
-- Cost     O(log N) for each Pending message and pair, O(1) for each Invisible one
local guard, longest_delay = read('>I4I6', ARGV[2])
local heads, fields, count = ARGV[3], {}, (#ARGV - 3) / 2
for n = 1, count do
    fields[n] = ARGV[n * 2 + 2]
end
local records = fetch_records(fields)
if is_stale() then
    return refuse(STALECONFIG)
end
local clock_fields = call('HMGET', clock, 'seq', 'high', 'outbox')
local sequence, high_water_mark = tonumber(clock_fields[1] or ''), tonumber(clock_fields[2])
if not (sequence and sequence >= 0 and sequence < IMPLICIT_DEADLINE_RANK and sequence % 1 == 0) then
    -- The shard is new, or another program has stored this value. Readers of events remember the sequence numbers of an
    -- earlier namespace with this name, so the first number must be higher. The time in units of 1/32 ms is higher: no
    -- shard gets 32 messages in each millisecond of its life. This number reaches the limit in the year 2109.
    sequence = now * 32 % IMPLICIT_DEADLINE_RANK
end
local outbox_refusal = refusal_of_outbox(outbox_size(clock_fields[3]))
if is_blocked or outbox_refusal then
    -- If all messages of the call exist, as in a retried call, the answer is as usual. If any is new, the whole call
    -- fails.
    for n = 1, count do
        if not records[n] then
            return is_blocked and refuse(QUEUE_BLOCKED) or outbox_refusal
        end
    end
end
local first_sequence, results, char, has_unused_bodies = sequence, {}, string.char, false
local DONE_INVISIBLE, DONE_PENDING = char(DONE, INVISIBLE), char(DONE, PENDING)

for n = 1, count do
    local field, record_tail = fields[n], ARGV[n * 2 + 3]
    local record, flags, input, due = current_record(field, records[n]), read('>BBI6', heads, n * 8 - 7)
    local is_absolute = band(input, 1) ~= 0
    if record then
        local state, stored_flags = byte(record, 1, 2)
        has_unused_bodies = has_unused_bodies or band(flags, BODY) ~= 0
        local is_readable, fixed = pcall(fixed_at, record, stored_flags)
        local at = is_readable and fixed + 12
        if not is_readable or sub(record, at, at + 7) ~= sub(record_tail, 1, 8) then
            -- A damaged record counts as another message.
            results[n] = char(CONFLICT, state or 0)
        elseif sub(record, at + 8, at + 11) == sub(record_tail, 9, 12) then
            -- A retried call gets its first answer.
            results[n] = band(stored_flags, BORN_PENDING) ~= 0 and DONE_PENDING or DONE_INVISIBLE
        else
            results[n] = char(ALREADY, state)
        end
    elseif is_absolute and due > now + longest_delay then
        results[n], has_unused_bodies = char(INVALID, 0), has_unused_bodies or band(flags, BODY) ~= 0
    else
        if not is_absolute then
            due = now + due
        end
        -- Clock guard: `high_water_mark` is the latest time that the driver has trusted. If a due time is reached, but
        -- is more than the guard ahead of this mark, the server's clock may have jumped. The message then stays
        -- Invisible until the driver promotes it. A delay counts from the server's clock, so it needs no guard.
        local state = due <= now and not (is_absolute and high_water_mark and due > high_water_mark + guard) and PENDING
            or INVISIBLE
        sequence = sequence + 1
        local rank, deadline, signature, pair_count, packed_pairs =
            sequence + IMPLICIT_DEADLINE_RANK, due + BIAS, '', 0, ''
        if band(flags, ANY_SECTION) ~= 0 then
            local is_explicit = band(flags, EXPLICIT) ~= 0
            if is_explicit then
                rank, deadline = sequence, read('>I8', record_tail, 13)
                if band(input, 2) ~= 0 then
                    deadline = deadline + now
                    record_tail = sub(record_tail, 1, 12) .. pack('>I8', deadline) .. sub(record_tail, 21)
                end
            end
            signature, pair_count, packed_pairs = read_pairs(record_tail, flags, is_explicit and 21 or 13)
        end
        put(field, pack(UNLEASED, state, state == PENDING and flags + BORN_PENDING or flags, 1, 0, due, sequence, due)
            .. record_tail)
        local mark
        if state == PENDING then
            mark = pack_mark(0, due, sequence, 1, field)
            add_pending(field, deadline - BIAS, rank, signature, pair_count, packed_pairs)
        else
            mark = add_timer(0, due, sequence, 1, field)
            add_to_forecast(due, 1)
        end
        -- If a message has neither an explicit deadline nor metadata, its mark (pack_mark in _transition) contains all
        -- data of the message that an event must contain.
        if band(flags, EXPLICIT + PAIRS) == 0 then
            add_event(mark, sequence, 1, 0, state, 0)
        else
            add_full_event(mark, sequence, 1, 0, state, 0, due, deadline, packed_pairs)
        end
        results[n] = state == PENDING and DONE_PENDING or DONE_INVISIBLE
    end
end
local failure = commit('')
if failure then
    unstage()
    return failure
end
if sequence ~= first_sequence then
    call('HSET', clock, 'seq', sequence)
end
if has_unused_bodies then
    unstage()
end
return table.concat(results)
