#!lua flags=allow-oom
-- Removes the last claim of the shard, so that the shard accepts the next claim, of any election and epoch.
-- The shard still rejects the scripts of earlier drivers. It also forgets that it was on the embedded server of a data
-- directory, because its data may have been copied. The next driver of a data directory stores this again.
-- KEYS: clock
-- Reply    1 if there was a claim, else 0
-- Cost     O(1)
local forgotten = redis.call('HDEL', clock, 'fence', 'election', 'owner', 'holder')
redis.call('HDEL', clock, 'embedded')
return math.min(forgotten, 1)
