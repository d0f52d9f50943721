#!lua flags=allow-oom
-- Writes a counter, so that a WAIT on this connection covers everything that the shard acknowledged before. A retried
-- call changes nothing: without a write on this connection, its WAIT would return immediately.
-- KEYS: hash
-- Reply    the number of barriers so far
-- Cost     O(1)
return redis.call('HINCRBY', hash, 'barriers', 1)
