#!lua
-- Creates a queue on the metadata shard.
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  settings, opaque
-- ARGV[3]  maximum number of queues in a namespace
-- ARGV[4]  uid c4 of the new queue
-- ARGV[5]  number of shards that the caller expects
-- Reply    {1 if created, else 0; the stored configuration: version I4, uid c4, number I2, settings}
-- Errors   TOOMANYQUEUES, NAMESPACEGONE; out of memory: rejected before the script starts
-- Cost     O(1); O(queues) if the counter of queue numbers is missing
local stored = redis.call('HGET', queues, ARGV[1])
if stored then
    return { 0, stored }
end
if redis.call('HGET', namespace, 'shards') ~= ARGV[5] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
local number = (tonumber(redis.call('HGET', namespace, 'queue_numbers')) or 0) + 1
if number == 1 then
    -- A number is never assigned twice, even if the counter was lost.
    for _, configuration in next, redis.call('HVALS', queues) do
        number = math.max(number, struct.unpack('>I2', configuration, 9) + 1)
    end
end
if number > tonumber(ARGV[3]) then
    return redis.error_reply('TOOMANYQUEUES a namespace has at most ' .. ARGV[3] .. ' queues')
end
redis.call('HSET', namespace, 'queue_numbers', number)
stored = struct.pack('>I4c4I2', 1, ARGV[4], number) .. ARGV[2]
redis.call('HSET', queues, ARGV[1], stored)
return { 1, stored }
