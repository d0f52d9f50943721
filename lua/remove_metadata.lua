#!lua flags=allow-oom
-- Removes the keys of a namespace that are on the metadata shard only: the last step of a deletion.
-- KEYS: namespace queues settings
-- ARGV[1]  mark of the deletion
-- Reply    number of removed keys, or -1 if this deletion does not delete the namespace
-- Cost     O(queues), by a thread of its own
local shards, mark = unpack(redis.call('HMGET', namespace, 'shards', 'deletion'))
if shards ~= '0' or mark ~= ARGV[1] then
    return -1
end
return redis.call('UNLINK', settings, queues, namespace)
