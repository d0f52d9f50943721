-- Collects the changes of a call, and writes them at the end with one command for each key.
-- Needs: _constants, _clock.
-- Also uses queue_number, history, options and exclusive, which _queue_context or _driver_context defines before.
local RESULT = '>BBI4I6'
-- Below RELAYED, `history` is the number of entries that the shard keeps, and 0 keeps none. From RELAYED on, the shard
-- keeps events until they are relayed, and `history` is a sum: RELAYED, the limit of the outbox in KiB, and DROPS if
-- events beyond the limit are dropped.
local RELAYED, DROPS = 2147483648, 1073741824
local DONE, ALREADY, NOT_FOUND, INVALID, LOST, CONFLICT = 0, 1, 2, 3, 4, 5
-- The first element of `happened` becomes the head of the entry, so that the entry is concatenated once: Lua hashes
-- every string that it creates.
local changed, writes, gone, timers, happened = {}, {}, {}, {}, { '' }
-- Sizes are counted, because Lua's operator `#` searches for the end of a table.
local writes_size, timers_size, happened_size, ready_size = 0, 0, 1, 0
local moved, minutes, late, missed, made_ready, with_deadline = {}, {}, {}, {}, 0, 0
local ready_added, ready_removed, pairs_added, pairs_removed = {}, {}, {}, {}

local function send(command, key, values)
    local size = #values
    if size <= 3000 then
        call(command, key, unpack(values))
        return
    end
    for first = 1, size, 3000 do
        call(command, key, unpack(values, first, math.min(first + 2999, size)))
    end
end

-- Returns the records of fields. A field of `messages` is the queue's number and the message's name.
local function fetch(fields)
    if #fields <= 1000 then
        return call('HMGET', messages, unpack(fields))
    end
    local found = {}
    for first = 1, #fields, 1000 do
        local records = call('HMGET', messages, unpack(fields, first, math.min(first + 999, #fields)))
        for n = 1, #records do
            found[first + n - 1] = records[n]
        end
    end
    return found
end

-- Returns the record of a message as this call has changed it: a message can occur twice in one call.
local function now_of(field, record)
    local left = changed[field]
    if left == nil then
        return record
    end
    return left
end

local function put(field, record)
    changed[field] = record
    writes[writes_size + 1] = field
    writes_size = writes_size + 2
    writes[writes_size] = record
end

-- Returns a message's `until`, generation (the low 16 bits of the incarnation, then of the version), kind and field.
-- These bytes are the timer of the message, and also the head of the event of its last transition. Kinds of timer: 0
-- promote, 1 expire, 2 retire.
local function mark(kind, until_ms, incarnation, version, field)
    return pack('>I6I2I2I2c0', until_ms, incarnation, version, kind * 16384 + #field, field)
end

local function timer(kind, until_ms, incarnation, version, field)
    local made = mark(kind, until_ms, incarnation, version, field)
    timers_size = timers_size + 1
    timers[timers_size] = made
    return made
end

-- Adds `by` to the number of messages that are due in the minute of `time`, if the queue keeps a forecast.
local forecasts = band(options, FORECAST) ~= 0
local function expect(time, by)
    if forecasts then
        local minute = math.floor(time / 60000)
        minutes[minute] = (minutes[minute] or 0) + by
    end
end

-- Records a transition: the mark of the message, then the tail. The tail is mostly equal for all messages of a call, so
-- it is packed again only if it differs. `from` and `to` are states, 0 if the message does not exist. `after` is the
-- lateness in ms, or nil.
local tail, tail_change, tail_attempts, tail_after, tail_incarnation, tail_version
local function event(marked, incarnation, version, from, to, attempts, after)
    local change, above, older = from * 8 + to, incarnation - incarnation % 65536, version - version % 65536
    moved[change] = (moved[change] or 0) + 1
    if change ~= tail_change or attempts ~= tail_attempts or after ~= tail_after or above ~= tail_incarnation
        or older ~= tail_version then
        tail_change, tail_attempts, tail_after, tail_incarnation, tail_version = change, attempts, after, above, older
        tail = pack('>I4I2I2B', above / 65536, older / 65536, attempts, after and 128 + change or change)
        if after then
            tail = tail .. pack('>I6', after)
        end
    end
    happened[happened_size + 1] = marked
    happened_size = happened_size + 2
    happened[happened_size] = tail
end

-- Records a transition with due time, deadline (+ 2^52) and pairs.
local function full_event(marked, incarnation, version, from, to, attempts, due, deadline, blob)
    event(marked, incarnation, version, from, to, attempts)
    happened[happened_size] = sub(tail, 1, 8) .. pack('>BI6I8I2c0', 64 + byte(tail, 9), due, deadline, #blob, blob)
end

-- Adds values to a histogram in `lateness`. Buckets are powers of two: bucket n counts the values below 2^n ms that no
-- lower bucket counts.
local function add_to(histogram, kind)
    local buckets = {}
    for ms, by in next, histogram do
        local _, bucket = math.frexp(ms)
        buckets[bucket] = (buckets[bucket] or 0) + by
    end
    for bucket, by in next, buckets do
        call('HINCRBY', lateness, kind .. bucket, by)
    end
end

-- Writes all changes of a plain queue's indexes. Removals come first: an entry that a call removes and then adds again
-- must stay.
local function settle()
    if #ready_removed > 0 then
        send('ZREM', ready, ready_removed)
    end
    if ready_size > 0 then
        send('ZADD', ready, ready_added)
    end
    if #pairs_removed > 0 then
        send('ZREM', pairs, pairs_removed)
    end
    if #pairs_added > 0 then
        send('ZADD', pairs, pairs_added)
    end
    ready_added, ready_removed, pairs_added, pairs_removed, ready_size = {}, {}, {}, {}, 0
end

local function outbox_limit()
    return history % DROPS * 1024
end

-- Returns an error if the outbox, which has `size` bytes, is at its limit and events are not dropped. Otherwise returns
-- nil.
local function refusal_of_outbox(size)
    if history >= RELAYED and history < RELAYED + DROPS and size >= outbox_limit() then
        return refuse(string.format('OUTBOXFULL %.0f %.0f', size, outbox_limit()))
    end
end
-- Adds the size of an entry to the size of the outbox. Returns false if the entry must be dropped, because the outbox
-- is full and `history` contains DROPS. The transitions of the entry are then counted as dropped.
local function in_outbox(entry, transitions)
    local size = call('HINCRBY', clock, 'outbox', #entry)
    if history < RELAYED + DROPS or size <= outbox_limit() then
        return true
    end
    call('HINCRBY', clock, 'outbox', -#entry)
    call('HINCRBY', clock, 'dropped', transitions)
    return false
end

local function commit(worker)
    if writes_size > 0 then
        send('HSET', messages, writes)
    end
    settle()
    if #gone > 0 then
        send('HDEL', bodies, gone)
    end
    local depth = {}
    for pair, by in next, moved do
        local from, to = math.floor(pair / 8), pair % 8
        depth[from] = (depth[from] or 0) - by
        depth[to] = (depth[to] or 0) + by
    end
    for state, by in next, depth do
        if by ~= 0 and state ~= 0 then
            call('HINCRBY', counts, state, by)
        end
    end
    for minute, by in next, minutes do
        if by ~= 0 and call('HINCRBY', forecast, minute, by) == 0 then
            call('HDEL', forecast, minute)
        end
    end
    add_to(late, 'late:')
    add_to(missed, 'missed:')
    if with_deadline > 0 then
        call('HINCRBY', lateness, 'deadlines', with_deadline)
    end
    if timers_size > 0 then
        call('XADD', inbox, '*', 't', table.concat(timers))
    end
    if happened_size > 1 and history ~= 0 then
        happened[1] = pack('>BI6c0Bc0', exclusive and 4 or 3, now, queue_number, #worker, worker)
        local entry = table.concat(happened)
        if history < RELAYED then
            call('XADD', events, 'MAXLEN', '~', history, '*', 'e', entry)
        elseif in_outbox(entry, (happened_size - 1) / 2) then
            call('XADD', events, '*', 'e', entry)
        end
    end
    if made_ready > 0 then
        call('SPUBLISH', wake, made_ready)
    end
end
