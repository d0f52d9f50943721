#!lua flags=allow-oom
-- Makes the caller the only driver whose scripts the shard accepts. The same fence may claim again.
-- KEYS: clock
-- INCLUDE: _clock _claim
-- ARGV[1]  fence: epoch I8, connection number I8, each below 2^53
-- ARGV[2]  kind of election that issued the epoch: a shard accepts only the kind of its first claim
-- ARGV[3]  accepted lead of the server's clock over the clocks of the hosts, in ms. The value is stored for later
--          claims; 0 removes the stored value, empty keeps it
-- ARGV[4]  name of the claiming process, for display
-- ARGV[5]  time that the clock guard trusts, in ms: stored as `high`, so that the guard protects due times (enqueue.lua)
--          before the first timer fires. Without this argument `high` stays as it is
-- ARGV[6]  with ARGV[5]: by how many ms the server's clock is ahead of that time if the clock guard holds, otherwise 0.
--          Stored as `held`, for display, with the fence: a claim of an earlier version does not remove the field, which
--          does not count any more if the shard has another fence
-- ARGV[7]  `1` if the server is the embedded server of a data directory: stored as `embedded`, so that no election by lease
--          takes the shard over (claim_shard_by_lease.lua). Without this argument the field stays as it is
-- Reply    now; the latest time that the clock guard has trusted, or before the first claim the time at which the
--          namespace was created; the accepted lead. All in ms; empty if not stored. Then the name of each corrupt field
--          and the first bytes of its value: another program has written the field, and this claim has removed or
--          replaced the value
-- Errors   FENCED (with the epoch of the holder): a higher fence holds the shard; ELECTION: the shard accepts only
--          another kind of election
-- Cost     O(1)
if election and election ~= ARGV[2] then
    return redis.error_reply('ELECTION the shard is driven by the election kind ' .. election)
end
if fence then
    -- Epochs are compared as numbers: `<` on strings depends on the server's locale.
    local epoch, number = struct.unpack('>I8I8', ARGV[1])
    local stored_epoch, stored_number = struct.unpack('>I8I8', fence)
    if epoch < stored_epoch or (epoch == stored_epoch and number < stored_number) then
        return redis.error_reply(string.format('FENCED %.0f the shard is held by epoch %.0f', stored_epoch, stored_epoch))
    end
end
if ARGV[7] == '1' then
    redis.call('HSET', clock, 'embedded', '1')
end
return store_claim()
