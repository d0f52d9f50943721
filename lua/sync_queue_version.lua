#!lua flags=allow-oom
-- Gives a shard its copy of a queue's version and stamp, read from home; an older version than it has changes nothing.
-- Who follows the shard's queues is told of a new one.
-- KEYS: config adopted
-- ARGV[1]  version I4, stamp c4
-- Reply    those that the shard has now
-- Cost     O(1)
local held = redis.call('HGET', config, 'version')
if held and held:sub(5) == ARGV[1]:sub(5) and struct.unpack('>I4', held) >= struct.unpack('>I4', ARGV[1]) then
    return held
end
redis.call('HSET', config, 'version', ARGV[1])
redis.call('SPUBLISH', adopted, '')
return ARGV[1]
