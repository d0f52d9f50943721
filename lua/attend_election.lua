#!lua flags=allow-oom
-- Writes a member's row in an election by lease, and returns the rows of all members.
-- The call can also remove the rows of members that have died, and replace the assignment of shards. If others must hear
-- of a change, it is published on the channel with the name of the key.
-- KEYS: election namespace
-- ARGV[1]  member
-- ARGV[2]  what happens to the member's row: `join` writes it, `keep` writes it if there is one, `leave` removes it
-- ARGV[3]  the row
-- ARGV[4]  1 if the others must hear of the row, else 0
-- ARGV[5]  header of the assignment that the caller has seen, c16; empty if it has seen none
-- ARGV[6]  the assignment that replaces it, with its header; empty: none. An assignment with another header stays. It
--          also stays if a row of ARGV[8...] has changed
-- ARGV[7]  number of shards that the caller expects
-- ARGV[8...] pairs of a member that has died and its row: the row is removed if it is still the same
-- Reply    1 if the member had a row before the call, else 0; header of the assignment; the rest of it, empty if its
--          header is ARGV[5]; then each member and its row
-- Errors   NAMESPACEGONE: nothing is written, so a member that hears late of a deletion leaves no key
-- Cost     O(n) for n members
if redis.call('HGET', namespace, 'shards') ~= ARGV[7] then
    return redis.error_reply('NAMESPACEGONE the namespace has lost its state, or was recreated with another number of shards')
end
local had_row = redis.call('HGET', election, ARGV[1]) ~= false
local is_news, agrees = false, true
for n = 8, #ARGV, 2 do
    local row = redis.call('HGET', election, ARGV[n])
    if row == ARGV[n + 1] then
        redis.call('HDEL', election, ARGV[n])
        is_news = true
    elseif row then
        agrees = false
    end
end
if ARGV[2] == 'leave' then
    is_news = redis.call('HDEL', election, ARGV[1]) == 1 or is_news
elseif ARGV[2] == 'join' or ARGV[2] == 'keep' and had_row then
    redis.call('HSET', election, ARGV[1], ARGV[3])
    is_news = is_news or not had_row or ARGV[4] == '1'
end
local assignment = redis.call('HGET', election, 'assignment') or ''
if ARGV[6] ~= '' and agrees and string.sub(assignment, 1, 16) == ARGV[5] then
    assignment = ARGV[6]
    redis.call('HSET', election, 'assignment', assignment)
    is_news = true
end
if is_news then
    redis.call('SPUBLISH', election, ARGV[1])
end
local header = string.sub(assignment, 1, 16)
local reply = { had_row and 1 or 0, header, header == ARGV[5] and '' or string.sub(assignment, 17) }
local fields = redis.call('HGETALL', election)
for n = 1, #fields, 2 do
    if fields[n] ~= 'assignment' then
        reply[#reply + 1] = fields[n]
        reply[#reply + 1] = fields[n + 1]
    end
end
return reply
