#!lua flags=allow-oom
-- Removes the last claim of the shard, so that the shard accepts the next claim, of any election and epoch. The shard
-- still rejects the scripts of earlier drivers.
-- KEYS: clock
-- Reply    1 if there was a claim, else 0
-- Cost     O(1)
return math.min(redis.call('HDEL', clock, 'fence', 'election', 'owner', 'holder'), 1)
