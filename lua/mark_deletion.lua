#!lua flags=allow-oom
-- Stores the mark of a namespace's deletion on a shard, for remove_keys, if it is still the shard that the caller has
-- read. After that, the caller has compared the mark in the namespace's own key. So a call that is sent late does not
-- mark a shard of a namespace that was created afterwards: it was created at another time. Creates no key.
-- KEYS: clock
-- ARGV[1]  mark of the deletion
-- ARGV[2]  the field `created` that the caller has read; empty if missing
-- Reply    1, or 0 if the shard is another one
-- Cost     O(1)
if redis.call('EXISTS', clock) == 0 or (redis.call('HGET', clock, 'created') or '') ~= ARGV[2] then
    return 0
end
redis.call('HSET', clock, 'deletion', ARGV[1])
return 1
