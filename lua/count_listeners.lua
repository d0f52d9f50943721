#!lua flags=no-writes
-- Returns how many connections listen to a channel. The ACL log of the server has no entry for a user who may not ask
-- for this, because the script checks the right first.
-- KEYS: clock
-- ARGV[1]  the channel, in the hash slot of the key
-- Reply    the number; nil if the user may not ask for it
-- Cost     O(1)
local count = { 'PUBSUB', 'SHARDNUMSUB', ARGV[1] }
if redis.acl_check_cmd(unpack(count)) then
    return redis.call(unpack(count))[2]
end
