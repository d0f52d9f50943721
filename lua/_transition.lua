-- Collects the changes of a call, and writes them at the end with few commands for each key.
-- Needs: _constants, _clock.
-- Also uses queue_number, history, options and exclusive, which _queue_context or _driver_context defines before.
local RESULT = '>BBI4I6'
-- The number `history` has two meanings. If it is less than RELAYED, it is the number of events that the shard keeps.
-- Otherwise, the shard keeps events until they are relayed, and `history` is a sum: RELAYED, the limit of the outbox in
-- KiB, and DROPS if events beyond the limit are dropped.
local RELAYED, DROPS = 2147483648, 1073741824
local DONE, ALREADY, NOT_FOUND, INVALID, LOST, CONFLICT = 0, 1, 2, 3, 4, 5
-- A call adds one entry to the stream `events`. The entry is concatenated once, at the end, because Lua hashes every
-- string that it creates. `event_parts[1]` is reserved for the head of the entry, which is known last.
local changed_records, writes, removed_messages, removed_bodies, timers, event_parts = {}, {}, {}, {}, {}, { '' }
-- Sizes are counted, because Lua's operator `#` searches for the end of a table.
local writes_size, timers_size, event_parts_size, ready_added_size = 0, 0, 1, 0
local transition_counts, forecast_changes, late_histogram, missed_histogram = {}, {}, {}, {}
local new_ready_count, deadline_count, leased_in_order = 0, 0, 0
local ready_added, ready_removed, pairs_added, pairs_removed = {}, {}, {}, {}

-- Adds to a number in a hash, and returns the sum. If another program has stored a value that is no number, or that
-- would become too large, the number starts again at `amount`, so that the call and all later ones succeed.
local function increase(key, field, amount)
    local sum = redis.pcall('HINCRBY', key, field, amount)
    if type(sum) == 'table' then
        -- If the key has another type, the number is lost: an error would end the call in the middle of its writes.
        redis.pcall('HSET', key, field, amount)
        return amount
    end
    return sum
end

local function call_in_chunks(command, key, values)
    local size = #values
    if size <= 3000 then
        call(command, key, unpack(values))
        return
    end
    for first = 1, size, 3000 do
        call(command, key, unpack(values, first, math.min(first + 2999, size)))
    end
end

-- Returns the records of fields. A field of `messages` is the queue's number and the message's name: the message's id,
-- in an exclusive queue with the exclusive value before it.
local function fetch_records(fields)
    if #fields <= 1000 then
        return call('HMGET', messages, unpack(fields))
    end
    local records = {}
    for first = 1, #fields, 1000 do
        local chunk = call('HMGET', messages, unpack(fields, first, math.min(first + 999, #fields)))
        for n = 1, #chunk do
            records[first + n - 1] = chunk[n]
        end
    end
    return records
end

-- Reads a record, whatever its state. Returns state, flags, version, attempts, until, position of the fixed part,
-- incarnation, due, deadline, rank, signature, number of indexed pairs, pairs, and position of OVERRIDES. Fails if the
-- record, or the value in the field of an exclusive queue, is damaged.
local function parse_record(field, record)
    local state, flags, version, attempts, until_ms = read(HEAD, record)
    if state < INVISIBLE or state > ERRORED then
        error('no state has the number ' .. state)
    elseif state == RUNNING or band(flags, OWNED) ~= 0 then
        read(LEASED, record)
    end
    if exclusive then
        read('>I2c0', field, 3)
    end
    local fixed = fixed_at(record, flags)
    local incarnation, due = read('>I6I6', record, fixed)
    return state, flags, version, attempts, until_ms, fixed, incarnation, due,
        read_sections(record, flags, fixed, incarnation, due)
end

-- Returns the record of a message as this call has changed it: a message can occur twice in one call.
local function current_record(field, record)
    local changed_record = changed_records[field]
    if changed_record == nil then
        return record
    end
    return changed_record
end

local function put(field, record)
    changed_records[field] = record
    writes[writes_size + 1] = field
    writes_size = writes_size + 2
    writes[writes_size] = record
end

-- Returns the *mark* of a message: `until` (the time at which its timer fires), the generation (the low 16 bits of the
-- incarnation, then of the version), the kind and the field. The mark is the message's timer, and also the first part
-- of the message's last transition in `events`. Kinds of timer: 0 promote, 1 expire, 2 retire.
local function pack_mark(kind, until_ms, incarnation, version, field)
    return pack('>I6I2I2I2c0', until_ms, incarnation, version, kind * 16384 + #field, field)
end

local function add_timer(kind, until_ms, incarnation, version, field)
    local mark = pack_mark(kind, until_ms, incarnation, version, field)
    timers_size = timers_size + 1
    timers[timers_size] = mark
    return mark
end

-- Adds `amount` to the number of messages that are due in the minute of `time`, if the queue keeps a forecast.
local has_forecast = band(options, FORECAST) ~= 0
local function add_to_forecast(time, amount)
    if has_forecast then
        local minute = math.floor(time / 60000)
        forecast_changes[minute] = (forecast_changes[minute] or 0) + amount
    end
end

local add_event, add_full_event
do
    local tail, tail_change, tail_attempts, tail_late_ms, tail_incarnation, tail_version
    -- Records a transition: the mark of the message, then the tail. The tail is mostly equal for all messages of a call,
    -- so it is packed again only if it differs. `from` and `to` are states, 0 if the message does not exist. `late_ms`
    -- is the lateness in ms, or nil.
    add_event = function(mark, incarnation, version, from, to, attempts, late_ms)
        local change, incarnation_high, version_high =
            from * 8 + to, incarnation - incarnation % 65536, version - version % 65536
        transition_counts[change] = (transition_counts[change] or 0) + 1
        if change ~= tail_change or attempts ~= tail_attempts or late_ms ~= tail_late_ms
            or incarnation_high ~= tail_incarnation or version_high ~= tail_version then
            tail_change, tail_attempts, tail_late_ms, tail_incarnation, tail_version =
                change, attempts, late_ms, incarnation_high, version_high
            tail = pack('>I4I2I2B', incarnation_high / 65536, version_high / 65536, attempts,
                late_ms and 128 + change or change)
            if late_ms then
                tail = tail .. pack('>I6', late_ms)
            end
        end
        event_parts[event_parts_size + 1] = mark
        event_parts_size = event_parts_size + 2
        event_parts[event_parts_size] = tail
    end

    -- Records a transition with due time, deadline (+ 2^52) and pairs.
    add_full_event = function(mark, incarnation, version, from, to, attempts, due, deadline, packed_pairs)
        add_event(mark, incarnation, version, from, to, attempts)
        event_parts[event_parts_size] = sub(tail, 1, 8)
            .. pack('>BI6I8I2c0', 64 + byte(tail, 9), due, deadline, #packed_pairs, packed_pairs)
    end
end

-- Adds values to a histogram in `lateness`. Buckets are powers of two: bucket n counts the values below 2^n ms that no
-- lower bucket counts.
local function add_to_histogram(histogram, prefix)
    local buckets = {}
    for ms, count in next, histogram do
        local _, bucket = math.frexp(ms)
        buckets[bucket] = (buckets[bucket] or 0) + count
    end
    for bucket, count in next, buckets do
        increase(lateness, prefix .. bucket, count)
    end
end

-- Writes all changes of the indexes of a queue that is not exclusive. Removals come first, because an entry that a call
-- removes and then adds again must stay. `leased_in_order` is the number of messages that leave the front of `ready`.
local function write_indexes()
    if leased_in_order > 0 then
        call('ZREMRANGEBYRANK', ready, 0, leased_in_order - 1)
    end
    if #ready_removed > 0 then
        call_in_chunks('ZREM', ready, ready_removed)
    end
    if ready_added_size > 0 then
        call_in_chunks('ZADD', ready, ready_added)
    end
    if #pairs_removed > 0 then
        call_in_chunks('ZREM', pairs, pairs_removed)
    end
    if #pairs_added > 0 then
        call_in_chunks('ZADD', pairs, pairs_added)
    end
    ready_added, ready_removed, pairs_added, pairs_removed, ready_added_size = {}, {}, {}, {}, 0
end

local function outbox_limit()
    return history % DROPS * 1024
end

-- Returns the number of bytes in the outbox. A value that no script stores counts as 0, so that nothing is refused.
local function outbox_size(stored)
    local size = tonumber(stored or 0)
    return size and size >= 0 and size < 9007199254740992 and size or 0
end

-- Returns an error if the outbox, which has `size` bytes, is at its limit and events are not dropped. Otherwise returns
-- nil.
local function refusal_of_outbox(size)
    if history >= RELAYED and history < RELAYED + DROPS and size >= outbox_limit() then
        return refuse(string.format('OUTBOXFULL %.0f %.0f', size, outbox_limit()))
    end
end
-- The highest id of an entry. A stream that has given this id accepts no further entry. The id never occurs, unless
-- another program has added an entry with this id.
local HIGHEST_ID = '18446744073709551615-18446744073709551615'
local STREAM_ENDED =
    'STREAMENDED a stream of the shard accepts no further entry after the highest possible id. Nothing was changed'

local function is_ended(stream)
    return #call('XRANGE', stream, HIGHEST_ID, HIGHEST_ID) > 0
end

-- Returns an error if `inbox` or `events` accepts no further entry, for callers that write before `commit`.
local function refusal_of_streams()
    if is_ended(inbox) or is_ended(events) then
        return refuse(STREAM_ENDED)
    end
end

-- Adds an entry to a stream. Returns the error if the server refuses the entry.
local function append(stream, ...)
    local reply = redis.pcall('XADD', stream, ...)
    if type(reply) == 'table' then
        return string.find(reply.err, 'last possible ID', 1, true) and redis.error_reply(STREAM_ENDED) or reply
    end
end

-- Adds the transitions of the call to `events`. If the outbox is full, and `history` contains DROPS, the transitions
-- are only counted as dropped. Returns the error if the server refuses the entry.
local function append_events(worker)
    if event_parts_size == 1 or history == 0 then
        return
    end
    event_parts[1] = pack('>BI6c0Bc0', exclusive and 4 or 3, now, queue_number, #worker, worker)
    local entry = table.concat(event_parts)
    if history < RELAYED then
        return append(events, 'MAXLEN', '~', history, '*', 'e', entry)
    end
    if history >= RELAYED + DROPS and outbox_size(call('HGET', clock, 'outbox')) + #entry > outbox_limit() then
        increase(clock, 'dropped', (event_parts_size - 1) / 2)
        return
    end
    local failure = append(events, '*', 'e', entry)
    if not failure then
        increase(clock, 'outbox', #entry)
    end
    return failure
end

-- Writes the changes of the call. Returns an error if a stream refuses its entry; then nothing has changed. So the
-- entries of the streams come first, and the caller writes nothing before. `events` is tested before a timer is added:
-- from a timer of a change that was not made, the event process could conclude that a lease is over
-- (`driver/finished_leases.py`). For exclusive queues, _ready_indexes has tested it.
local function commit(worker)
    if timers_size > 0 and history > 0 and not exclusive and is_ended(events) then
        return refuse(STREAM_ENDED)
    end
    local failure = timers_size > 0 and append(inbox, '*', 't', table.concat(timers)) or append_events(worker)
    if failure then
        return failure
    end
    if writes_size > 0 then
        call_in_chunks('HSET', messages, writes)
    end
    if #removed_messages > 0 then
        call_in_chunks('HDEL', messages, removed_messages)
    end
    write_indexes()
    if #removed_bodies > 0 then
        call_in_chunks('HDEL', bodies, removed_bodies)
    end
    local count_changes = {}
    for change, amount in next, transition_counts do
        local from, to = math.floor(change / 8), change % 8
        count_changes[from] = (count_changes[from] or 0) - amount
        count_changes[to] = (count_changes[to] or 0) + amount
        if to == ERRORED then
            -- The total for the metrics (queue_metrics.lua). Redrive and retention do not reduce it.
            increase(config, 'errored', amount)
        end
    end
    for state, amount in next, count_changes do
        -- A count below zero is damaged. At zero, it does not keep the queue from being deleted.
        if amount ~= 0 and state ~= 0 and increase(counts, state, amount) < 0 then
            redis.pcall('HSET', counts, state, 0)
        end
    end
    for minute, amount in next, forecast_changes do
        if amount ~= 0 and increase(forecast, minute, amount) == 0 then
            call('HDEL', forecast, minute)
        end
    end
    add_to_histogram(late_histogram, 'late:')
    add_to_histogram(missed_histogram, 'missed:')
    if deadline_count > 0 then
        increase(lateness, 'deadlines', deadline_count)
    end
    if new_ready_count > 0 then
        call('SPUBLISH', wake, new_ready_count)
    end
end
