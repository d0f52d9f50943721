#!lua flags=allow-oom
-- Deletes a slot of the wheel's level 2 whose timers have all been handled, unless the slot has grown in the meantime.
-- KEYS: clock slots slot
-- INCLUDE: _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  the slot's name `2:number`
-- ARGV[3]  number of chunks that the caller has read and handled
-- Reply    0 if the slot was deleted; otherwise the slot's length in chunks, and nothing was changed
-- Errors   FENCED
-- Cost     O(1), and O(chunks) freed in the background
local length = redis.call('LLEN', slot)
if length ~= tonumber(ARGV[3]) then
    return length
end
redis.call('UNLINK', slot)
redis.call('ZREM', slots, ARGV[2])
return 0
