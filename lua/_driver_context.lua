-- Reads the driver's arguments.
--   ARGV[3]  the queue: version of its configuration I4, uid c4, number I2, options B, history I4 (_queue_context),
--            max_attempts I2, retention in ms I6, retention of errored messages in ms I6
--   ARGV[2]  the bound I6: the driver's time, up to which the clock guard trusts the server's clock. It is stored as
--            `high`. Then the budget of the call I4, in index entries (WEIGHT in _ready_indexes), and 1 if the guard
--            holds, otherwise 0, B
-- Defines `trusted`: a message is due if `trusted` has reached its time. `now` stays the server's time, so what is
-- recorded is true even if the call has waited in a frozen server. But while the guard holds, `now` is `trusted`.
local queue_number = sub(ARGV[3], 9, 10)
local options, history, default_attempts, retention, errored_retention = read('>BI4I2I6I6', ARGV[3], 11)
local exclusive = band(options, EXCLUSIVE) ~= 0
if call('HGET', config, 'version') ~= sub(ARGV[3], 1, 8) then
    return redis.error_reply('STALECONFIG the queue has another configuration here')
end
local bound, entries_left, is_held = read('>I6I4B', ARGV[2])
local server_ms, trusted = now, math.min(now, bound)
now = is_held == 1 and trusted or now
call('HSET', clock, 'high', bound)
