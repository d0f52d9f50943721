#!lua flags=no-writes
-- Returns the metrics of some queues of a shard. An event process calls this script for a shard that it leads.
-- A damaged key of a queue does not fail the call: its values are missing in the reply. So is a value that is too long
-- for a number, so that a reply is small whatever another program has stored.
-- KEYS: clock messages queue_keys...
-- INCLUDE: _clock
-- ARGV[n]  for the queue n, whose keys are the four keys from 4 * n - 3 in `queue_keys` (config, counts, lateness, ready):
--          the text of its counts in the reply of an earlier call. If the text has not changed since then, `errored` and
--          `late` are left out. Empty: nothing is left out
-- Reply    {now I6; the shard's fence, empty if there is none; number of commands of this call, then for each queue
--          {text of the counts: the numbers of messages in the states 1 to 6, separated by commas, each empty if it is
--          missing; `errored`, how many messages have become Errored since the queue was created, empty if none has;
--          `late`, the histogram of lateness in `lateness`: the counts of the buckets 0 to 48, separated by commas;
--          the time I6 since which the most urgent message in `ready` is deliverable, by its record, empty if no
--          message is ready}}
-- Cost     O(log N) for each queue, and at most five commands
-- The state as in _constants.
local PENDING, MAX_DIGITS, LATE = 2, 16, {}
for bucket = 0, 48 do
    LATE[bucket + 1] = 'late:' .. bucket
end
-- The call itself, TIME and HGET.
local commands = 3

-- Returns the values of a hash, separated by commas. A missing value is empty.
local function read_fields(key, ...)
    local values = redis.pcall('HMGET', key, ...)
    commands = commands + 1
    for n = 1, #values do
        values[n] = values[n] and #values[n] <= MAX_DIGITS and values[n] or ''
    end
    return table.concat(values, ',')
end

-- Returns the time `until` in the record of the most urgent message. A Pending message is deliverable since this time.
local function head_since(ready)
    local members = redis.pcall('ZRANGE', ready, 0, 0)
    commands = commands + 1
    if type(members[1]) ~= 'string' then
        return ''
    end
    local record = redis.pcall('HGET', messages, string.sub(members[1], 7))
    commands = commands + 1
    local is_pending = type(record) == 'string' and #record >= 14 and string.byte(record) == PENDING
    return is_pending and string.sub(record, 9, 14) or ''
end

local replies = { struct.pack('>I6', now), redis.call('HGET', clock, 'fence') or '', 0 }
for n = 1, #ARGV do
    local config, counts, lateness, ready = unpack(queue_keys, 4 * n - 3, 4 * n)
    local text = read_fields(counts, 1, 2, 3, 4, 5, 6)
    local answer = { text, '', '', '' }
    if text ~= ARGV[n] then
        answer[2], answer[3] = read_fields(config, 'errored'), read_fields(lateness, unpack(LATE))
    end
    -- The most urgent message can change while the counts stay equal.
    local pending = string.match(text, '^[^,]*,([^,]*)')
    if pending and pending ~= '' and pending ~= '0' then
        answer[4] = head_since(ready)
    end
    replies[n + 3] = answer
end
replies[3] = commands
return replies
