#!lua flags=allow-oom
-- Deletes a queue on the metadata shard, when no shard has messages of the queue any more. A placeholder keeps the number
-- of the queue, because timers with this number may still be on the wheel.
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  version I4, uid c4 that the caller read
-- ARGV[3]  name of the placeholder
-- ARGV[4]  settings of the placeholder, opaque
-- ARGV[5]  number of shards that the caller expects
-- Reply    {1 if deleted, else 0; the stored configuration if it has another version or uid, otherwise empty}
-- Errors   NAMESPACEGONE
-- Cost     O(1)
if redis.call('HGET', namespace, 'shards') ~= ARGV[5] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
local stored = redis.call('HGET', queues, ARGV[1])
if not stored then
    return { 0, '' }
elseif string.sub(stored, 1, 8) ~= ARGV[2] then
    return { 0, stored }
end
local field = 'queue:' .. string.format('%.0f', (struct.unpack('>I2', stored, 9)))
redis.call('HDEL', queues, ARGV[1])
redis.call('HSET', queues, ARGV[3], string.sub(stored, 1, 10) .. ARGV[4])
redis.call('HSET', namespace, field, ARGV[3])
-- HINCRBY would fail, in the middle of the deletion, if another program has stored a value that is no number.
local function number(field)
    return tonumber(redis.call('HGET', namespace, field) or 0) or 0
end
redis.call('HSET', namespace, 'deleted_queues', number('deleted_queues') + 1)
local token = redis.call('HGET', namespace, 'auto_created:' .. ARGV[1])
if token then
    redis.call('HDEL', namespace, 'auto_created:' .. ARGV[1])
    local created = number('auto_creations:' .. token) - 1
    if created < 1 then
        redis.call('HDEL', namespace, 'auto_creations:' .. token)
    else
        redis.call('HSET', namespace, 'auto_creations:' .. token, created)
    end
end
return { 1, '' }
