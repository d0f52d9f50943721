#!lua flags=no-writes
-- Returns the number of messages in each state, and the histograms of lateness.
-- KEYS: clock counts lateness
-- INCLUDE: _clock
-- Reply    {now I6, {state, count, …}, {bucket, count, …}}
-- Cost     O(1)
return { struct.pack('>I6', now), redis.call('HGETALL', counts), redis.call('HGETALL', lateness) }
