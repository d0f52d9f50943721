#!lua flags=allow-oom
-- Makes the caller the only driver whose scripts the shard accepts, in an election by lease.
-- The claim replaces the one that the caller has seen. A shard of kind `lockfile` is taken over: its former driver is
-- fenced.
-- KEYS: clock
-- INCLUDE: _clock _claim
-- ARGV[1]  fence: epoch I8, random number I8, each below 2^53
-- ARGV[2]  `lease`
-- ARGV[3]  to ARGV[6]: as in `claim_shard.lua`; if ARGV[5] is empty, `high` stays as it is
-- ARGV[7]  the claiming member of the election
-- ARGV[8]  the bytes that the caller has seen in the field `fence`; empty if there was no field
-- ARGV[9]  the bytes that the caller has seen in the field `created`; empty if there was no field: then any value is
--          accepted. If the shard has no fence, only this field shows that its namespace is still the same: a claim
--          that comes late, when the namespace is gone or was created again, changes nothing and leaves no key
-- Reply    as `claim_shard.lua`
-- Errors   FENCED (with the epoch of the holder), ELECTION, EMBEDDED: the shard has another fence than ARGV[8], or no
--          fence and another value than ARGV[9]; it accepts only another kind of election; it is on the embedded
--          server of a data directory
-- Cost     O(1)
if election and election ~= ARGV[2] and election ~= 'lockfile' then
    return redis.error_reply('ELECTION the shard is driven by the election kind ' .. election)
end
if redis.call('HGET', clock, 'embedded') then
    return redis.error_reply('EMBEDDED the shard is on the embedded server of a data directory')
end
local current = stored[1] or ''
if current == '' and ARGV[9] ~= '' and stored[5] ~= ARGV[9] then
    return redis.error_reply('FENCED 0 the shard has lost its data since the caller has read its claim')
end
if current ~= ARGV[1] and current ~= ARGV[8] then
    local epoch = fence and struct.unpack('>I8', fence) or 0
    return redis.error_reply(string.format('FENCED %.0f the shard is held by epoch %.0f', epoch, epoch))
end
redis.call('HSET', clock, 'holder', ARGV[7])
return store_claim()
