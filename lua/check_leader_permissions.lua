#!lua flags=no-writes
-- Returns the commands that the user of the connection may not run, although event processes send them.
-- The server refuses the call itself if the user may not use one of the keys. `check_permissions.lua` checks the commands
-- that scripts need.
-- KEYS: clock messages bodies inbox slots slot events election namespace
-- ARGV[1]  the channel on which shards announce changes of queues
-- ARGV[2]  the number of replicas for which the relay waits
-- Reply    the denied commands; empty if the user may drive
-- Cost     O(1)
local commands = {
    { 'XREAD', 'STREAMS', inbox, '0' }, { 'CLIENT', 'SETNAME', '' }, { 'SSUBSCRIBE', election },
    { 'SSUBSCRIBE', ARGV[1] }, { 'SPUBLISH', election, '' }, { 'SCRIPT', 'LOAD', '' },
}
if tonumber(ARGV[2]) > 0 then
    commands[#commands + 1] = { 'WAIT', ARGV[2], '0' }
end
local denied_commands = {}
for n = 1, #commands do
    if not redis.acl_check_cmd(unpack(commands[n])) then
        denied_commands[#denied_commands + 1] = table.concat(commands[n], ' ', 1, 2)
    end
end
return denied_commands
