#!lua flags=allow-oom
-- Removes keys of a shard for a deletion of the namespace, if the shard has the mark of the deletion.
-- The mark is the field `deletion` of `clock` (mark_deletion). A call that is sent late may find a namespace that was
-- created after the deletion. Its shards do not have the mark. A shard has the key `clock` before it has messages, so
-- without this key no mark is necessary.
-- KEYS: clock removed...
-- ARGV[1]  mark of the deletion
-- Reply    {number of removed keys; -1 if the shard does not have the mark, then with the field `created`, empty if
--          missing}
-- Cost     O(keys)

-- Another program may have stored a value of another type. No event process and no client can use such a shard.
local fields = redis.pcall('HLEN', clock)
if type(fields) == 'number' and fields > 0 and redis.call('HGET', clock, 'deletion') ~= ARGV[1] then
    return { -1, redis.call('HGET', clock, 'created') or '' }
end
return { redis.call('UNLINK', unpack(removed)) }
