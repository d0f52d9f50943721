#!lua flags=allow-oom
-- Hides the number of shards of a namespace from its clients: the first step of a deletion. The caller has stored the
-- mark before its checks. If the mark is gone, the namespace was deleted meanwhile.
-- KEYS: namespace
-- ARGV[1]  mark of the deletion
-- ARGV[2]  number of shards
-- Reply    1, or 0 if the namespace does not have the mark
-- Cost     O(1)
if redis.call('HGET', namespace, 'deletion') ~= ARGV[1] then
    return 0
end
redis.call('HSET', namespace, 'deleting', ARGV[2], 'shards', 0)
return 1
