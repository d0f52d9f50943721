#!lua flags=allow-oom
-- Changes a queue at home whose version the caller has seen.
-- KEYS: namespace queues
-- ARGV[1]  name of the queue
-- ARGV[2]  version that the caller has seen
-- ARGV[3]  settings, opaque
-- ARGV[4]  how many shards the caller knows of
-- Reply    {1 changed, else 0; what is stored now: version I4, stamp c4, number I2, settings; empty where nothing is}
-- Errors   NAMESPACEGONE
-- Cost     O(1)
if redis.call('HGET', namespace, 'shards') ~= ARGV[4] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was made anew with other shards')
end
local stored = redis.call('HGET', queues, ARGV[1])
if not stored then
    return { 0, '' }
end
local version, stamp, number = struct.unpack('>I4c4I2', stored)
if version ~= tonumber(ARGV[2]) then
    return { 0, stored }
end
local changed = struct.pack('>I4c4I2', version + 1, stamp, number) .. ARGV[3]
redis.call('HSET', queues, ARGV[1], changed)
return { 1, changed }
