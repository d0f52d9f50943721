#!lua flags=allow-oom
-- Updates a queue on the metadata shard, if it is still the queue that the caller read, with the same version.
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  version I4, uid c4 that the caller read
-- ARGV[3]  settings, opaque
-- ARGV[4]  number of shards that the caller expects
-- Reply    {1 if changed, else 0; the stored configuration: version I4, uid c4, number I2, settings; empty if there is
--          none}
-- Errors   NAMESPACEGONE
-- Cost     O(1)
if redis.call('HGET', namespace, 'shards') ~= ARGV[4] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
local stored = redis.call('HGET', queues, ARGV[1])
if not stored then
    return { 0, '' }
end
if string.sub(stored, 1, 8) ~= ARGV[2] then
    return { 0, stored }
end
local updated = struct.pack('>I4', struct.unpack('>I4', stored) + 1) .. string.sub(stored, 5, 10) .. ARGV[3]
redis.call('HSET', queues, ARGV[1], updated)
return { 1, updated }
