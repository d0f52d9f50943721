-- Reads the driver's arguments.
--   ARGV[3]  the queue: version of its configuration I4, uid c4, number I2, options B, history I4 (_queue_context),
--            max_attempts I2, retention in ms I6, retention of errored messages in ms I6
--   ARGV[2]  the clock guard's bound I6: a later `now` is reduced to the bound. The bound is stored as `high`, the
--            latest time that the clock guard has trusted. Then the budget of the call I4, in index entries (WEIGHT in
--            _ready_indexes)
local queue_number = sub(ARGV[3], 9, 10)
local options, history, default_attempts, retention, errored_retention = read('>BI4I2I6I6', ARGV[3], 11)
local exclusive = band(options, EXCLUSIVE) ~= 0
if call('HGET', config, 'version') ~= sub(ARGV[3], 1, 8) then
    return redis.error_reply('STALECONFIG the queue has another configuration here')
end
local bound, entries_left = read('>I6I4', ARGV[2])
now = math.min(now, bound)
call('HSET', clock, 'high', bound)
