#!lua flags=allow-oom
-- Forgets who has driven the shard, so that the next claim of any election and epoch is good. Scripts of before are refused.
-- KEYS: clock
-- Reply    1 if anybody had, else 0
-- Cost     O(1)
return math.min(redis.call('HDEL', clock, 'fence', 'election', 'owner'), 1)
