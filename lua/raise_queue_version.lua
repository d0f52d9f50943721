#!lua flags=allow-oom
-- Raises the version of a queue on the metadata shard above the version that another shard has.
-- The other shard can be ahead only if the metadata shard has lost an update of the queue in a failover. The raised
-- version is new, so that no client uses it with the settings of the lost update.
-- KEYS: queues
-- ARGV[1]  name of the queue
-- ARGV[2]  version I4, uid c4 that the other shard has
-- Reply    the raised version I4 and the uid c4; empty if the metadata shard has this version or a newer version, or
--          another queue of this name, or none
-- Cost     O(1)
local stored = redis.call('HGET', queues, ARGV[1])
if not stored or stored:sub(5, 8) ~= ARGV[2]:sub(5) then
    return ''
end
local version = struct.unpack('>I4', ARGV[2])
if struct.unpack('>I4', stored) >= version then
    return ''
end
local raised = struct.pack('>I4', version + 1) .. stored:sub(5, 8)
redis.call('HSET', queues, ARGV[1], raised .. stored:sub(9))
return raised
