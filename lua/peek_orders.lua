#!lua flags=allow-oom
-- Returns the order (deadline and rank, see _ready_indexes) of each of the most urgent Pending messages.
-- A filter restricts this to the messages that carry all its pairs. A client compares the orders of all shards, and
-- then dequeues from the shards with the most urgent messages. Leases nothing. The walk of a filter may park groups
-- (_ready_indexes). The dequeue then skips these groups.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _transition _ready_indexes _filter_match _filter_walk
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  limit I2, number of entries to walk I4
-- ARGV[3]  the cursor that the previous call returned, to continue its walk; else empty
-- ARGV[4]  empty, or the filter: its signature c8 (_filter_match) and its pairs, each I2c0
-- Reply    {orders, each deadline I8 (+ 2^52) and rank I6; cursor for the next call if nothing is found yet, else
--          empty; 1 if there may be more orders, because the budget ended after some orders were found; else 0}
-- Errors   STALECONFIG, STREAMENDED
-- Cost     O(log N) for each message, and the entries walked
local limit, budget = read('>I2I4', ARGV[2])
local orders = {}
if ARGV[4] == '' then
    local heads = call('ZRANGE', ready, 0, limit - 1, 'WITHSCORES')
    for n = 1, #heads, 2 do
        orders[#orders + 1] = pack('>I8', heads[n + 1] + BIAS) .. sub(heads[n], 1, 6)
    end
    return { table.concat(orders), '', 0 }
end
local fields, cursor, may_have_more = walk(ARGV[4], ARGV[3], limit, budget)
local records = #fields > 0 and fetch_records(fields)
local function order_of(record)
    local _, flags, _, _, _, incarnation, due = read(UNLEASED, record)
    local deadline, rank = read_order(record, flags, AFTER_HEAD, incarnation, due)
    return pack('>I8I6', deadline + BIAS, rank)
end
for n = 1, #fields do
    local is_readable, order = pcall(order_of, records[n])
    -- A message without a readable record comes first, so that a dequeue of this shard removes its index entry.
    orders[n] = is_readable and order or pack('>I8I6', BIAS, 0)
end
return { table.concat(orders), cursor or '', may_have_more and 1 or 0 }
