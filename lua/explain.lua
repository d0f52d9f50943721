#!lua flags=no-writes
-- Returns the record of a message, the number of messages ahead of it, and the holder of its exclusive value. The
-- holder is the leased message of the value or, if the value is free, the value's head (_ready_indexes).
-- KEYS: clock config messages bodies ready waiting locks
-- INCLUDE: _constants _record _clock _queue_context _require_current_config
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  name of the message: its field in `messages` without the queue's number
-- Reply    {one string of three numbers: now I6, number of messages ahead in `ready` I6, number ahead in the exclusive
--          value I6 (2^48-1: does not apply); record; name of the holder; record of the holder; 1 if the clock
--          guard of the last event process held (claim_shard), else 0}
-- Errors   STALECONFIG
-- Cost     O(log N)
local NONE = 281474976710655
local name = ARGV[2]
local record = call('HGET', messages, queue_number .. name) or ''
local ahead_in_ready, ahead_in_value, holder, holder_record = NONE, NONE, '', ''
if record ~= '' then
    local state, flags = byte(record, 1, 2)
    local fixed = fixed_at(record, flags)
    local incarnation, due = read('>I6I6', record, fixed)
    local deadline, rank = read_order(record, flags, fixed, incarnation, due)
    if state == PENDING then
        ahead_in_ready = call('ZRANK', ready, pack('>I6', rank) .. queue_number .. name) or NONE
    end
    if exclusive then
        local value, at = read('>I2c0', name)
        local prefix, lock = sub(name, 1, at - 1), call('HGET', locks, value)
        if lock then
            holder = prefix .. (byte(lock) == 82 and sub(lock, 2) or sub(lock, 16))
            holder_record = call('HGET', messages, queue_number .. holder) or ''
        end
        if state == PENDING and ahead_in_ready == NONE then
            local order = pack('>I8I6', deadline + BIAS, rank)
            -- The head of a free value is ahead, too. If the value is leased, the reply names its holder separately.
            ahead_in_value = call('ZLEXCOUNT', waiting, '[' .. prefix, '(' .. prefix .. order)
                + (lock and byte(lock) == 72 and 1 or 0)
        end
    end
end
local position = pack('>I6I6I6', now, ahead_in_ready, ahead_in_value)
local held, fence = unpack(call('HMGET', clock, 'held', 'fence'))
return { position, record, holder, holder_record, held and fence and sub(held, -16) == fence and 1 or 0 }
