#!lua flags=no-writes
-- Tells which commands the user may not run that scripts do or that go with one in a transaction: a script whose command is
-- refused in the middle has done half of its work.
-- KEYS: clock wake
-- Reply    the commands, none where all is well
-- Cost     O(1)
local commands = {
    { 'EXISTS', clock }, { 'GET', clock }, { 'SET', clock, '' }, { 'UNLINK', clock },
    { 'HGET', clock, '' }, { 'HMGET', clock, '' }, { 'HGETALL', clock }, { 'HVALS', clock },
    { 'HLEN', clock }, { 'HSTRLEN', clock, '' }, { 'HSET', clock, '', '' }, { 'HDEL', clock, '' }, { 'HINCRBY', clock, '', 1 },
    { 'LLEN', clock }, { 'LRANGE', clock, 0, 0 }, { 'LTRIM', clock, 0, 0 }, { 'RPUSH', clock, '' },
    { 'XADD', clock, '*', '', '' }, { 'XTRIM', clock, 'MAXLEN', 0 }, { 'XRANGE', clock, '-', '+' }, { 'XLEN', clock },
    { 'ZADD', clock, 0, '' }, { 'ZREM', clock, '' }, { 'ZREMRANGEBYRANK', clock, 0, 0 }, { 'ZRANGE', clock, 0, 0 },
    { 'ZRANGEBYLEX', clock, '-', '+' }, { 'ZLEXCOUNT', clock, '-', '+' }, { 'ZRANK', clock, '' }, { 'ZSCORE', clock, '' },
    { 'SPUBLISH', wake, '' }, { 'TIME' }, { 'MULTI' }, { 'EXEC' },
}
local denied = {}
for n = 1, #commands do
    if not redis.acl_check_cmd(unpack(commands[n])) then
        denied[#denied + 1] = commands[n][1]
    end
end
return denied
