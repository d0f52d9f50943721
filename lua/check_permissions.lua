#!lua flags=no-writes
-- Returns the commands that the user of the connection may not run, although scripts or their transactions need them.
-- Clients check this first, because a script that fails at a denied command has already made a part of its changes.
-- KEYS: clock wake
-- Reply    the denied commands; empty if the user may run all of them
-- Cost     O(1)
local commands = {
    { 'EXISTS', clock }, { 'GET', clock }, { 'SET', clock, '' }, { 'UNLINK', clock },
    { 'HGET', clock, '' }, { 'HMGET', clock, '' }, { 'HGETALL', clock }, { 'HVALS', clock },
    { 'HLEN', clock }, { 'HSTRLEN', clock, '' }, { 'HSET', clock, '', '' }, { 'HSCAN', clock, 0 }, { 'HDEL', clock, '' }, { 'HINCRBY', clock, '', 1 },
    { 'LLEN', clock }, { 'LRANGE', clock, 0, 0 }, { 'LTRIM', clock, 0, 0 }, { 'RPUSH', clock, '' },
    { 'XADD', clock, '*', '', '' }, { 'XTRIM', clock, 'MAXLEN', 0 }, { 'XRANGE', clock, '-', '+' }, { 'XLEN', clock },
    { 'ZADD', clock, 0, '' }, { 'ZREM', clock, '' }, { 'ZREMRANGEBYRANK', clock, 0, 0 }, { 'ZRANGE', clock, 0, 0 },
    { 'ZRANGEBYLEX', clock, '-', '+' }, { 'ZLEXCOUNT', clock, '-', '+' }, { 'ZRANK', clock, '' }, { 'ZSCORE', clock, '' },
    { 'SPUBLISH', wake, '' }, { 'TIME' }, { 'INFO' }, { 'MULTI' }, { 'EXEC' },
}
local denied_commands = {}
for n = 1, #commands do
    if not redis.acl_check_cmd(unpack(commands[n])) then
        denied_commands[#denied_commands + 1] = commands[n][1]
    end
end
return denied_commands
