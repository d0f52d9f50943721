#!lua flags=allow-oom
-- Stores a shard's copy of a queue's version and uid, which the caller read from the metadata shard.
-- The uid distinguishes the queue from earlier queues of the same name. If the shard already has this version or a
-- newer version, with the same uid, nothing changes. A change is published on the channel `adopted`,
-- with the key `config`, which names the queue.
-- KEYS: config adopted
-- ARGV[1]  version I4, uid c4
-- Reply    the version and uid that the shard has now
-- Cost     O(1)
local stored = redis.call('HGET', config, 'version')
if stored and stored:sub(5) == ARGV[1]:sub(5) and struct.unpack('>I4', stored) >= struct.unpack('>I4', ARGV[1]) then
    return stored
end
redis.call('HSET', config, 'version', ARGV[1])
redis.call('SPUBLISH', adopted, config)
return ARGV[1]
