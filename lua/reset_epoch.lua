#!lua flags=allow-oom
-- Removes the last claim of the shard, so that the shard accepts the next claim, of any election and epoch.
-- The shard still rejects the scripts of earlier drivers. It also forgets that it was on the embedded server of a data
-- directory, because its data may have been copied. The next driver of a data directory stores this again.
-- After an election by ZooKeeper, the field `former_election` remains. ZooKeeper has perhaps only lost its data, so
-- candidates of last resort must leave the shard to its event processes. The next claim makes the field irrelevant.
-- KEYS: clock
-- Reply    1 if there was a claim, else 0
-- Cost     O(1)
local kind = redis.call('HGET', clock, 'election')
local forgotten = redis.call('HDEL', clock, 'fence', 'election', 'owner', 'holder')
redis.call('HDEL', clock, 'embedded')
if kind == 'zookeeper' then
    redis.call('HSET', clock, 'former_election', kind)
elseif kind then
    redis.call('HDEL', clock, 'former_election')
end
return math.min(forgotten, 1)
