#!lua flags=allow-oom
-- Writes something, so that a WAIT on this connection covers all that the shard has acknowledged before: without a write of
-- its own a repeated call, which changes nothing, would wait for nothing.
-- KEYS: hash
-- Reply    how many barriers there were
-- Cost     O(1)
return redis.call('HINCRBY', hash, 'barriers', 1)
