#!lua flags=no-writes
-- How many messages are in each state, and how late they became deliverable.
-- KEYS: clock counts lateness
-- INCLUDE: _clock
-- Reply    {now I6, {state, count, …}, {bucket, count, …}}
-- Cost     O(1)
return { struct.pack('>I6', now), redis.call('HGETALL', counts), redis.call('HGETALL', lateness) }
