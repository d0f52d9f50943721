#!lua flags=allow-oom
-- Writes a counter, so that a WAIT on this connection covers everything that the shard acknowledged before. A retried
-- call changes nothing. If this connection wrote nothing else, the WAIT after the call would return immediately.
-- KEYS: hash
-- Reply    the number of barriers so far
-- Cost     O(1)
return redis.call('HINCRBY', hash, 'barriers', 1)
