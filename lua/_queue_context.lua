-- What the caller knows of the queue, in ARGV[1]: version of its configuration I4, stamp c4, queue number I2, options B,
-- entries of history to keep I4 (0: none; from 2^31 on: all until relayed, see _transition).
local queue_number, options, history = read('>c2BI4', ARGV[1], 9)
local exclusive = band(options, EXCLUSIVE) ~= 0
local is_blocked = band(options, BLOCKED) ~= 0
local function is_stale()
    return call('HGET', config, 'version') ~= sub(ARGV[1], 1, 8)
end
-- The refusal of a caller whose configuration is not the shard's, or of what the queue is blocked for; nil: it is welcome.
-- A call that was answered before has its answer all the same, so scripts that know such calls look for them first; others
-- take _require_current_config.
local STALECONFIG, QUEUE_BLOCKED = 'STALECONFIG the queue has another configuration here', 'BLOCKED the queue is blocked for this operation'
local function refusal_of_caller()
    return is_stale() and refuse(STALECONFIG) or is_blocked and refuse(QUEUE_BLOCKED) or nil
end
