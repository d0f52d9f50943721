#!lua
-- Creates a queue on the metadata shard. Numbers that were never given come first. Afterwards, the queue takes the number
-- of a deleted queue, which the caller has prepared (`operations/removal/queue_numbers.py`).
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  settings, opaque
-- ARGV[3]  maximum number of queues in a namespace
-- ARGV[4]  uid c4 of the new queue
-- ARGV[5]  number of shards that the caller expects
-- ARGV[6]  name of the placeholder whose number the queue may take; otherwise empty
-- ARGV[7]  with auto-create for a token of the service: name of the token, and
-- ARGV[8]  maximum number of existing queues that were created for the token
-- Reply    {1 if created, else 0; the stored configuration: version I4, uid c4, number I2, settings}
-- Errors   TOOMANYQUEUES, TOOMANYFORTOKEN, NUMBERSGIVEN (the caller must prepare a number), NAMESPACEGONE; out of memory:
--          rejected before the script starts
-- Cost     O(1); O(queues) if the counter of queue numbers is missing
local stored = redis.call('HGET', queues, ARGV[1])
if stored then
    return { 0, stored }
end
if redis.call('HGET', namespace, 'shards') ~= ARGV[5] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
local limit = tonumber(ARGV[3])
local placeholders = tonumber(redis.call('HGET', namespace, 'deleted_queues')) or 0
if redis.call('HLEN', queues) - placeholders >= limit then
    return redis.error_reply('TOOMANYQUEUES a namespace has at most ' .. ARGV[3] .. ' queues')
end
local created = ARGV[7] and tonumber(redis.call('HGET', namespace, 'auto_creations:' .. ARGV[7]) or 0) or 0
if ARGV[7] and created >= tonumber(ARGV[8]) then
    return redis.error_reply('TOOMANYFORTOKEN auto-create has made ' .. string.format('%.0f', created) .. ' queues for token "'
        .. ARGV[7] .. '", and the limit of the token is ' .. ARGV[8] .. ': delete queues, let an admin create the queue,'
        .. ' or raise `auto_created_queues` in the token file')
end
local number = (tonumber(redis.call('HGET', namespace, 'queue_numbers')) or 0) + 1
if number == 1 then
    -- A number is never assigned to two queues, even if the counter was lost.
    for _, configuration in next, redis.call('HVALS', queues) do
        number = math.max(number, struct.unpack('>I2', configuration, 9) + 1)
    end
end
if number <= limit then
    redis.call('HSET', namespace, 'queue_numbers', number)
else
    local placeholder = ARGV[6] ~= '' and redis.call('HGET', queues, ARGV[6])
    if not placeholder then
        return redis.error_reply('NUMBERSGIVEN all numbers of queues were given')
    end
    number = struct.unpack('>I2', placeholder, 9)
    redis.call('HDEL', queues, ARGV[6])
    redis.call('HSET', namespace, 'deleted_queues', math.max(placeholders - 1, 0))
end
stored = struct.pack('>I4c4I2', 1, ARGV[4], number) .. ARGV[2]
redis.call('HSET', queues, ARGV[1], stored)
-- An event process finds the row of a number by this name (`event_process/known_queues.py`).
redis.call('HSET', namespace, 'queue:' .. string.format('%.0f', number), ARGV[1])
if ARGV[7] then
    redis.call('HSET', namespace, 'auto_created:' .. ARGV[1], ARGV[7])
    redis.call('HSET', namespace, 'auto_creations:' .. ARGV[7], created + 1)
end
return { 1, stored }
