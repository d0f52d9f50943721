-- Reads the driver's data of the queue from ARGV[3]: version of its configuration I4, uid c4, number I2, options B,
-- history I4, max_attempts I2, retention in ms I6, retention of errored in ms I6. In ARGV[2]: its bound on the time I6 (the
-- clock guard: 'now' goes no further, and the bound is the new high-water mark) and how many index entries to touch I4.
local queue_number = sub(ARGV[3], 9, 10)
local options, history, default_attempts, retention, errored_retention = read('>BI4I2I6I6', ARGV[3], 11)
local exclusive = band(options, EXCLUSIVE) ~= 0
if call('HGET', config, 'version') ~= sub(ARGV[3], 1, 8) then
    return redis.error_reply('STALECONFIG the queue has another configuration here')
end
local bound, entries_left = read('>I6I4', ARGV[2])
now = math.min(now, bound)
call('HSET', clock, 'high', bound)
