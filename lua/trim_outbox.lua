#!lua flags=allow-oom
-- Removes, from the start of the outbox, the entries that the broker has acknowledged. Returns the size of the rest. If
-- the first entry is not ARGV[2], nothing is removed, so a delayed or repeated call does not distort the counters.
-- KEYS: clock events
-- INCLUDE: _clock _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  id of the first entry; empty: trim nothing
-- ARGV[3]  id of the first entry to keep
-- ARGV[4]  bytes of the entries before ARGV[3]
-- Reply    entries trimmed, or -1 if the first entry is not ARGV[2]; entries left; their bytes; transitions dropped so
--          far; age in ms of the oldest entry, and its id; 0 and '' if there is none
-- Errors   FENCED
-- Cost     O(1) for each entry trimmed
local trimmed = 0
if ARGV[2] ~= '' then
    local first_entry = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
    if first_entry and first_entry[1] == ARGV[2] then
        trimmed = redis.call('XTRIM', events, 'MINID', ARGV[3])
        if type(redis.pcall('HINCRBY', clock, 'outbox', -ARGV[4])) == 'table' then
            -- Another program has stored a value that is no number.
            redis.call('HSET', clock, 'outbox', 0)
        end
    else
        trimmed = -1
    end
end
local counters, length = redis.call('HMGET', clock, 'outbox', 'dropped'), redis.call('XLEN', events)
if length == 0 and counters[1] and counters[1] ~= '0' then
    -- An empty outbox has no bytes. If another program has changed the number, the number is right again from now on.
    counters[1] = '0'
    redis.call('HSET', clock, 'outbox', 0)
end
local oldest_entry = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
local age, oldest_id = 0, ''
if oldest_entry then
    oldest_id = oldest_entry[1]
    local added, packed = tonumber(oldest_id:match('^%d+')), oldest_entry[2][2]
    if #packed >= 7 and (packed:byte() == 3 or packed:byte() == 4) then
        -- The time of the call (_transition). Ids never go back with the server's clock: if the clock was ahead and was
        -- corrected, the ids of new entries stay ahead of the clock.
        added = struct.unpack('>I6', packed, 2)
    end
    age = math.max(0, now - added)
end
return { trimmed, length, tonumber(counters[1]) or 0, tonumber(counters[2]) or 0, age, oldest_id }
