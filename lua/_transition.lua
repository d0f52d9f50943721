-- Gathers what a call changes, and writes it at the end in as few commands as there are keys.
-- Needs: _record, _clock and a caller's queue_number, history, options.
local RESULT = '>BBI4I6'
local DONE, ALREADY, NOT_FOUND, INVALID, LOST, CONFLICT, WAIT = 0, 1, 2, 3, 4, 5, 6
local found, writes, gone, timers, happened = {}, {}, {}, {}, {}
local depth, minutes, tally, made_ready = {}, {}, {}, 0
-- What becomes of an entry of a plain queue's indexes: its score, or false where it goes. The last word counts.
local ready_becomes, pairs_become = {}, {}

local function send(command, key, values)
    for first = 1, #values, 3000 do
        redis.call(command, key, unpack(values, first, math.min(first + 2999, #values)))
    end
end

-- Reads the records of these names, so that a name given twice sees what was done to it the first time.
local function fetch(names)
    for first = 1, #names, 1000 do
        local fields = {}
        for n = first, math.min(first + 999, #names) do
            fields[n - first + 1] = queue_number .. names[n]
        end
        local records = redis.call('HMGET', messages, unpack(fields))
        for n = 1, #fields do
            found[names[first + n - 1]] = records[n]
        end
    end
end

local function put(name, record)
    found[name] = record
    writes[#writes + 1] = queue_number .. name
    writes[#writes + 1] = record
end

local function drop_body(name)
    gone[#gone + 1] = queue_number .. name
end

-- Kinds of timer: 0 promote, 1 expire, 2 retire.
local function timer(kind, time, incarnation, version, name)
    timers[#timers + 1] = pack('>I6c0I2I2I2c0', time, queue_number, incarnation % 65536, version % 65536,
        kind * 16384 + #name, name)
end

local function count(state, by)
    depth[state] = (depth[state] or 0) + by
end

local function expect(time, by)
    if band(options, 2) ~= 0 then
        local minute = math.floor(time / 60000)
        minutes[minute] = (minutes[minute] or 0) + by
    end
end

-- One transition: `from` and `to` are states, 0 is 'not there'. `more` are the optional parts of the event.
local function event(name, incarnation, version, from, to, attempts, flags, more)
    if from ~= 0 then
        count(from, -1)
    end
    if to ~= 0 then
        count(to, 1)
    end
    if history ~= 0 then
        happened[#happened + 1] = pack('>I2c0I6I4BI2', #name, name, incarnation, version,
            flags + from * 8 + to, attempts) .. more
    end
end

local function record_lateness(prefix, late)
    local _, bucket = math.frexp(late)
    local field = prefix .. bucket
    tally[field] = (tally[field] or 0) + 1
end

local function settle(key, becomes)
    local added, removed = {}, {}
    for member, score in next, becomes do
        if score then
            added[#added + 1] = score
            added[#added + 1] = member
        else
            removed[#removed + 1] = member
        end
    end
    if #removed > 0 then
        send('ZREM', key, removed)
    end
    if #added > 0 then
        send('ZADD', key, added)
    end
end

local function commit(worker)
    if #writes > 0 then
        send('HSET', messages, writes)
    end
    if next(ready_becomes) then
        settle(ready, ready_becomes)
    end
    if next(pairs_become) then
        settle(pairs, pairs_become)
    end
    if #gone > 0 then
        send('HDEL', bodies, gone)
    end
    for state, by in next, depth do
        if by ~= 0 then
            redis.call('HINCRBY', counts, state, by)
        end
    end
    for minute, by in next, minutes do
        if by ~= 0 and redis.call('HINCRBY', forecast, minute, by) == 0 then
            redis.call('HDEL', forecast, minute)
        end
    end
    for field, by in next, tally do
        redis.call('HINCRBY', lateness, field, by)
    end
    if #timers > 0 then
        redis.call('XADD', inbox, '*', 't', table.concat(timers))
    end
    if #happened > 0 then
        local entry = pack('>BI6c0Bc0', exclusive and 2 or 1, now, queue_number, #worker, worker) .. table.concat(happened)
        if history == 4294967295 then
            redis.call('XADD', events, '*', 'e', entry)
        else
            redis.call('XADD', events, 'MAXLEN', '~', history, '*', 'e', entry)
        end
    end
    if made_ready > 0 then
        redis.call('SPUBLISH', wake, made_ready)
    end
end
