#!lua flags=allow-oom
-- Stores the mark of a namespace's deletion on a shard, for remove_keys.
-- The caller has read the field `created` of the shard, and then compared the mark in the namespace's own key. Nothing is
-- stored if the field has another value by now: the shard is of a namespace that was created afterwards.
-- KEYS: clock
-- ARGV[1]  mark of the deletion
-- ARGV[2]  the field `created` that the caller has read; empty if missing
-- Reply    1, or 0 if the shard is another one or has no key `clock`
-- Cost     O(1)
if redis.call('EXISTS', clock) == 0 or (redis.call('HGET', clock, 'created') or '') ~= ARGV[2] then
    return 0
end
redis.call('HSET', clock, 'deletion', ARGV[1])
return 1
