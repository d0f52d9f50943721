-- Reads the queue's data, as the caller has cached them, from ARGV[1]: version of the queue's configuration I4, uid c4,
-- queue number I2, options B, entries of history to keep I4 (0: none; from 2^31 on: all until they are relayed, see
-- _transition).
local queue_number, options, history = read('>c2BI4', ARGV[1], 9)
local exclusive = band(options, EXCLUSIVE) ~= 0
local is_blocked = band(options, BLOCKED) ~= 0
local function is_stale()
    return call('HGET', config, 'version') ~= sub(ARGV[1], 1, 8)
end
-- Returns an error if the caller's configuration is stale or the queue is blocked for this operation, else nil. Most
-- scripts include _require_current_config, which returns this error at the start. But a retried dequeue or enqueue must
-- get its first answer even if the queue was blocked in the meantime. So dequeue checks for a stored answer first, and
-- enqueue rejects a call only if a message of the call is new.
local STALECONFIG, QUEUE_BLOCKED = 'STALECONFIG the queue has another configuration here', 'BLOCKED the queue is blocked for this operation'
local function refusal_of_caller()
    return is_stale() and refuse(STALECONFIG) or is_blocked and refuse(QUEUE_BLOCKED) or nil
end
