#!lua flags=allow-oom
-- Cuts the beginning of the outbox, entries that the broker has acknowledged, and tells what is left. Nothing is cut where
-- it begins elsewhere: so a call that comes late or twice takes nothing off what is counted.
-- KEYS: clock events
-- INCLUDE: _clock _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  id of the first entry; empty only tells what is there
-- ARGV[3]  id from which on entries stay
-- ARGV[4]  bytes of the entries before it
-- Reply    entries that were cut, -1 where it begins elsewhere; entries left, their bytes, transitions that were dropped, how
--          many ms ago the oldest was written, or its entry at least
-- Errors   FENCED
-- Cost     O(1) for each entry cut
local cut = 0
if ARGV[2] ~= '' then
    local head = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
    if head and head[1] == ARGV[2] then
        cut = redis.call('XTRIM', events, 'MINID', ARGV[3])
        redis.call('HINCRBY', clock, 'outbox', -ARGV[4])
    else
        cut = -1
    end
end
local counted = redis.call('HMGET', clock, 'outbox', 'dropped')
local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
local age = oldest and math.max(0, now - tonumber(oldest[1]:match('^%d+'))) or 0
return { cut, redis.call('XLEN', events), tonumber(counted[1]) or 0, tonumber(counted[2]) or 0, age }
