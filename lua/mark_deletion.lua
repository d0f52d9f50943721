#!lua flags=allow-oom
-- Stores the mark of a namespace's deletion on a shard, for remove_keys. Creates no key.
-- KEYS: clock
-- ARGV[1]  mark of the deletion
-- Reply    1, or 0 if the shard has no key `clock`
-- Cost     O(1)
if redis.call('EXISTS', clock) == 0 then
    return 0
end
redis.call('HSET', clock, 'deletion', ARGV[1])
return 1
