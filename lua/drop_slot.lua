#!lua flags=allow-oom
-- Deletes a slot of the wheel's level 2, all of whose timers have been answered, unless it has grown meanwhile.
-- KEYS: clock slots slot
-- INCLUDE: _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  the slot's name `2:number`
-- ARGV[3]  how many chunks the caller has read and answered
-- Reply    0: the slot is gone; otherwise its length in chunks, and nothing was changed
-- Errors   FENCED
-- Cost     O(1), and O(chunks) freed in the background
local length = redis.call('LLEN', slot)
if length ~= tonumber(ARGV[3]) then
    return length
end
redis.call('UNLINK', slot)
redis.call('ZREM', slots, ARGV[2])
return 0
