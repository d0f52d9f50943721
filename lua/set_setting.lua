#!lua flags=allow-oom
-- Sets or removes a setting of the namespace, on the metadata shard.
-- KEYS: namespace settings
-- ARGV[1]  name
-- ARGV[2]  number of shards that the caller expects
-- ARGV[3]  maximum number of settings in a namespace
-- ARGV[4]  value; without this argument the setting is removed
-- Reply    1
-- Errors   NAMESPACEGONE, TOOMANYSETTINGS
-- Cost     O(1)
if redis.call('HGET', namespace, 'shards') ~= ARGV[2] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
if not ARGV[4] then
    redis.call('HDEL', settings, ARGV[1])
    return 1
end
if not redis.call('HGET', settings, ARGV[1]) and redis.call('HLEN', settings) >= tonumber(ARGV[3]) then
    return redis.error_reply('TOOMANYSETTINGS a namespace has at most ' .. ARGV[3] .. ' settings: remove one of them')
end
redis.call('HSET', settings, ARGV[1], ARGV[4])
return 1
