#!lua flags=allow-oom
-- Removes the mark that the first step of a namespace's deletion has stored, because the deletion is refused.
-- So a copy of the step that is sent late does not hide the namespace. Changes nothing if a deletion goes on.
-- KEYS: namespace
-- ARGV[1]  mark of the deletion
-- Reply    1 if the mark was removed, else 0
-- Cost     O(1)
local shards, mark = unpack(redis.call('HMGET', namespace, 'shards', 'deletion'))
if shards == '0' or mark ~= ARGV[1] then
    return 0
end
return redis.call('HDEL', namespace, 'deletion')
