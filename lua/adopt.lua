#!lua flags=allow-oom
-- Gives a shard its copy of a queue's version, read from home; an older one than it has changes nothing.
-- KEYS: config
-- ARGV[1]  version I4
-- Reply    the version that the shard has now, I4
-- Cost     O(1)
local held = redis.call('HGET', config, 'version')
if held and struct.unpack('>I4', held) >= struct.unpack('>I4', ARGV[1]) then
    return held
end
redis.call('HSET', config, 'version', ARGV[1])
return ARGV[1]
