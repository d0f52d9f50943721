#!lua flags=allow-oom
-- Removes the keys of a queue without messages from a shard. The shard's copy of the configuration is one of them, so
-- later calls for the queue return STALECONFIG. A call that is repeated changes nothing.
-- KEYS: config counts lateness forecast ready waiting locks pairs vpairs parked adopted
-- ARGV[1]  version I4, uid c4 of the configuration under which the queue is deleted
-- ARGV[2]  1 if the counts must be 0, else 0: a purge has removed all messages, and a count that is left is damaged
-- Reply    the number of messages that the queue still has here, by its counts; nothing is changed unless it is 0
-- Errors   STALECONFIG
-- Cost     O(1)
local stored = redis.call('HGET', config, 'version')
if not stored then
    return 0
elseif stored ~= ARGV[1] then
    return redis.error_reply('STALECONFIG the queue has another configuration here')
end
local left = 0
for _, count in next, ARGV[2] ~= '0' and redis.call('HMGET', counts, 1, 2, 3, 4, 5, 6) or {} do
    -- A value that no script stores counts as 0: the deletion has removed all messages that it found.
    if count and #count < 16 and string.find(count, '^%d+$') then
        left = left + count
    end
end
if left == 0 then
    redis.call('UNLINK', config, counts, lateness, forecast, ready, waiting, locks, pairs, vpairs, parked)
    redis.call('SPUBLISH', adopted, config)
end
return left
