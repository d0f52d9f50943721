#!lua flags=allow-oom
-- Releases a shard in an election by lease: the shard accepts no driver until the next claim.
-- Nothing changes if the shard has another fence.
-- KEYS: clock
-- ARGV[1]  fence I8 I8
-- Reply    1 if the shard was released, else 0
-- Cost     O(1)
if redis.call('HGET', clock, 'fence') ~= ARGV[1] then
    return 0
end
redis.call('HSET', clock, 'fence', string.sub(ARGV[1], 1, 8) .. string.rep('\0', 8))
redis.call('HDEL', clock, 'holder')
return 1
