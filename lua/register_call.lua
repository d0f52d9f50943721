#!lua flags=allow-oom
-- Registers a call with a request id on the registration shard of its slot, before another shard executes the call.
-- This shard stores the number and the digest of the call, and rejects every other call with this number. A repeated call
-- is registered again. If no shard stores an answer to the call, this shard stores the first one.
-- `clock` is for the barrier before a WAIT (replication_barrier).
-- KEYS: clock session call_digest?
-- INCLUDE: _constants _session
-- ARGV[1]  answer to store, if the call has ended; otherwise empty
-- ARGV[2]  session (_session)
-- Reply    the answer to the call that this shard has stored before, or nil
-- Errors   SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(1)
if ARGV[1] == '' then
    call('SET', call_digest, digest_of_call, 'PX', lifetime)
elseif not stored_answer then
    store_answer(ARGV[1])
end
return stored_answer
