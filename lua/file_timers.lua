#!lua flags=allow-oom
-- Files timers into slots of the wheel and trims the inbox, atomically. If there is nothing to file or trim, only
-- returns the time.
-- KEYS: clock inbox slots lists...
-- INCLUDE: _clock _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  the inbox keeps its entries from this id on; empty: the inbox keeps all entries; `+`: all entries of the
--          inbox are filed, and its last entry has the highest possible id, so the inbox accepts no further entry: a
--          new inbox begins
-- ARGV[3]… for each key of `lists` (a slot is a Redis list of chunks, a chunk is a string of packed timers): name of
--          the slot `level:number`, start of the slot in ms, number of chunks, the chunks
-- Reply    now, then the length of each of `lists` in chunks
-- Errors   FENCED
-- Cost     O(1) for each chunk, O(log slots) for each list, O(1) for each entry trimmed
local reply, at = { now }, 3
for n = 1, #lists do
    local last = at + 2 + ARGV[at + 2]
    reply[n + 1] = redis.call('RPUSH', lists[n], unpack(ARGV, at + 3, last))
    redis.call('ZADD', slots, 'NX', ARGV[at + 1], ARGV[at])
    at = last + 1
end
if ARGV[2] == '+' then
    -- If somebody has removed the inbox meanwhile, the entries of the new inbox are not filed yet.
    local highest_id = '18446744073709551615-18446744073709551615'
    if #redis.call('XRANGE', inbox, highest_id, highest_id) > 0 then
        redis.call('UNLINK', inbox)
    end
elseif ARGV[2] ~= '' then
    redis.call('XTRIM', inbox, 'MINID', ARGV[2])
end
return reply
