#!lua flags=allow-oom
-- Makes the caller the only driver whose scripts the shard accepts. The same fence may claim again.
-- KEYS: clock
-- INCLUDE: _clock
-- ARGV[1]  fence: epoch I8, connection number I8, each below 2^53
-- ARGV[2]  kind of election that issued the epoch: a shard accepts only the kind of its first claim
-- ARGV[3]  accepted lead of the server's clock over the clocks of the hosts, in ms. The value is stored for later
--          claims; 0 removes the stored value, empty keeps it
-- ARGV[4]  name of the claiming process, for display
-- Reply    now; the latest time that the clock guard has trusted; the accepted lead. All in ms; empty if not stored
-- Errors   FENCED (with the epoch of the holder): a higher fence holds the shard; ELECTION: the shard accepts only
--          another kind of election
-- Cost     O(1)
local held = redis.call('HMGET', clock, 'fence', 'election', 'high', 'accepted')
if held[2] and held[2] ~= ARGV[2] then
    return redis.error_reply('ELECTION the shard is driven by the election kind ' .. held[2])
end
if held[1] then
    -- Epochs are compared as numbers: `<` on strings depends on the server's locale.
    local epoch, number = struct.unpack('>I8I8', ARGV[1])
    local held_epoch, held_number = struct.unpack('>I8I8', held[1])
    if epoch < held_epoch or (epoch == held_epoch and number < held_number) then
        return redis.error_reply(string.format('FENCED %.0f the shard is held by epoch %.0f', held_epoch, held_epoch))
    end
end
redis.call('HSET', clock, 'fence', ARGV[1], 'election', ARGV[2], 'owner', ARGV[4])
local accepted = held[4]
if ARGV[3] == '0' then
    accepted = nil
    redis.call('HDEL', clock, 'accepted')
elseif ARGV[3] ~= '' then
    accepted = ARGV[3]
    redis.call('HSET', clock, 'accepted', accepted)
end
return { now, held[3] or '', accepted or '' }
