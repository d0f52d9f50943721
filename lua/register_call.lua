#!lua flags=allow-oom
-- Registers a call with a request id on the registration shard of its slot, before another shard executes the call.
-- This shard stores the number and the digest of the call, and rejects every other call with this number. A repeated call
-- is registered again. `clock` is for the barrier before a WAIT (replication_barrier).
-- KEYS: clock session call_digest?
-- INCLUDE: _constants _session
-- ARGV[1]  empty
-- ARGV[2]  session (_session)
-- Reply    nil
-- Errors   SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(1)
call('SET', call_digest, digest_of_call, 'PX', lifetime)
