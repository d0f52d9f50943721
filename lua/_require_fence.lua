-- Rejects a driver that does not hold the shard's fence. Reads ARGV[1], packed epoch and connection number.
do
    local stored_fence = redis.call('HGET', clock, 'fence')
    if stored_fence ~= ARGV[1] then
        return redis.error_reply('FENCED the shard is driven under another fence')
    end
end
