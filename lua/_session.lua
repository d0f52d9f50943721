-- Reads the client session from ARGV[2]: sequence I8, lifetime in ms I4, options B (1: an empty answer is stored, too;
-- 2: the call may open the session; 4: the call may be a retry; 8: the call only repeats a stored answer, see
-- dequeue.lua), then the digest of the call if it has a request id.
-- The key `session` stores the last sequence and the answer to it, so a retried call changes nothing more. (Client
-- sessions: Ongaro, "Consensus: Bridging Theory and Practice", 6.3.)
-- Only calls with a request id have the key `call_digest`, which all parts of a call share. It stores the sequence and
-- the digest of the last call that was registered (register_call) or answered, so another call with the same sequence is
-- rejected, and so is every call with a smaller sequence.
local sequence, lifetime, session_options = read('>I8I4B', ARGV[2])
local stores_empty, stored_answer = band(session_options, 1) ~= 0, nil
local OTHER_CALL = 'OTHERCALL the session has answered another call with this number'
local digest_of_call = call_digest and sub(ARGV[2], 1, 8) .. sub(ARGV[2], 14)
do
    local last_digest = call_digest and call('GET', call_digest)
    local digest_sequence = last_digest and read('>I8', last_digest) or 0
    if last_digest and digest_sequence == sequence and last_digest ~= digest_of_call then
        return redis.error_reply(OTHER_CALL)
    end
    local session_record = call('GET', session)
    local last_sequence = session_record and read('>I8', session_record) or 0
    if not session_record and band(session_options, 2) == 0 then
        return redis.error_reply('SESSIONEXPIRED the session is not, or no longer, known here')
    elseif last_sequence > sequence or digest_sequence > sequence then
        return redis.error_reply('SESSIONOLD a newer call of this session was answered')
    elseif session_record and last_sequence == sequence then
        stored_answer = sub(session_record, 9)
    end
end
local function store_answer(answer)
    call('SET', session, sub(ARGV[2], 1, 8) .. answer, 'PX', lifetime)
    if digest_of_call then
        call('SET', call_digest, digest_of_call, 'PX', lifetime)
    end
end
