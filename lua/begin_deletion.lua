#!lua flags=allow-oom
-- Reads the namespace's own fields for the first step of its deletion.
-- Also stores a random mark, unless a deletion that was cut off has stored one. One call reads and stores, so the mark
-- is that of the namespace that the caller has read, also if the caller stops for a long time afterwards.
-- KEYS: namespace
-- ARGV[1]  mark: 16 lower-case hexadecimal digits
-- ARGV[2]  format that the caller reads: nothing is stored in a namespace of another format
-- ARGV[3]  1 to store the mark also if there is no namespace, else 0
-- Reply    values of the fields format, shards, deleting, history, deletion; nil if missing
-- Cost     O(1)
local stored = redis.call('HMGET', namespace, 'format', 'shards', 'deleting', 'history', 'deletion')
local format, shards, _, history, mark = unpack(stored)
-- A format that is no number is damage.
local has_other_format = format and #format <= 9 and string.find(format, '^%d+$') and tonumber(format) ~= tonumber(ARGV[2])
local is_marked = mark and #mark == 16 and string.find(mark, '^[0-9a-f]+$')
if not has_other_format and not is_marked and (shards or history or ARGV[3] == '1') then
    redis.call('HSET', namespace, 'deletion', ARGV[1])
    stored[5] = ARGV[1]
end
return stored
