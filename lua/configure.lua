#!lua flags=allow-oom
-- Creates a queue at home, or changes one whose version the caller has seen.
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  version that the caller has seen; 0 creates
-- ARGV[3]  settings, opaque
-- ARGV[4]  how many queues a namespace may have
-- ARGV[5]  stamp c4 of a new queue
-- Reply    {1 changed or created, else 0; what is stored now: version I4, stamp c4, number I2, settings}
-- Errors   TOOMANYQUEUES, NAMESPACEGONE
-- Cost     O(1), O(queues) for the first of a namespace
local stored = redis.call('HGET', queues, ARGV[1])
local version, stamp, number = 0, ARGV[5], nil
if stored then
    version, stamp, number = struct.unpack('>I4c4I2', stored)
end
if version ~= tonumber(ARGV[2]) then
    return { 0, stored or '' }
end
if not number then
    if redis.call('HEXISTS', namespace, 'shards') == 0 then
        return redis.error_reply('NAMESPACEGONE the namespace has lost its state: close this client and open another')
    end
    number = (tonumber(redis.call('HGET', namespace, 'queue_numbers')) or 0) + 1
    if number == 1 then
        -- A number is never given twice, even where the counter was lost.
        for _, other in next, redis.call('HVALS', queues) do
            number = math.max(number, struct.unpack('>I2', other, 9) + 1)
        end
    end
    if number > tonumber(ARGV[4]) then
        return redis.error_reply('TOOMANYQUEUES a namespace has at most ' .. ARGV[4] .. ' queues')
    end
    redis.call('HSET', namespace, 'queue_numbers', number)
end
local changed = struct.pack('>I4c4I2', version + 1, stamp, number) .. ARGV[3]
redis.call('HSET', queues, ARGV[1], changed)
return { 1, changed }
