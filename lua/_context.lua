-- What the caller knows of the queue, in ARGV[1]: version of its configuration I4, stamp c4, queue number I2, options B,
-- entries of history to keep I4 (0: none, 2^32-1: all until relayed). Refuses a caller whose configuration is not the shard's.
local queue_number, options, history = read('>c2BI4', ARGV[1], 9)
local exclusive = band(options, EXCLUSIVE) ~= 0
if call('HGET', config, 'version') ~= sub(ARGV[1], 1, 8) then
    return refuse('STALECONFIG the queue has another configuration here')
end
if band(options, BLOCKED) ~= 0 then
    return refuse('BLOCKED the queue is blocked for this operation')
end
