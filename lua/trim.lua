#!lua flags=allow-oom
-- Cuts the beginning of the outbox: entries that the broker has acknowledged, or nothing where it begins elsewhere.
-- KEYS: clock events
-- INCLUDE: _fence
-- ARGV[1]  fence I8 I8 (_fence)
-- ARGV[2]  id of the first entry, so that a call that comes late or twice takes nothing off what is counted
-- ARGV[3]  id of the first entry that stays
-- ARGV[4]  bytes of the entries between
-- Reply    how many entries were cut; -1: the outbox does not begin with the first
-- Errors   FENCED
-- Cost     O(1) for each entry cut
local head = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)
if not head[1] or head[1][1] ~= ARGV[2] then
    return -1
end
local cut = redis.call('XTRIM', events, 'MINID', ARGV[3])
redis.call('HINCRBY', clock, 'outbox', -ARGV[4])
return cut
