-- Reads the client session from ARGV[2]: sequence I8, life in ms I4, options B (1: an empty answer is stored, too; 2:
-- the call may open the session; 4: the call may be a retry). The key `session` stores the last sequence and the answer
-- to it, so a retried call changes nothing more. (Client sessions: Ongaro, "Consensus: Bridging Theory and Practice",
-- 6.3.)
local sequence, life, session_options = read('>I8I4B', ARGV[2])
local keeps_empty, replayed = band(session_options, 1) ~= 0, nil
do
    local kept = call('GET', session)
    local last = kept and read('>I8', kept) or 0
    if not kept and band(session_options, 2) == 0 then
        return redis.error_reply('SESSIONEXPIRED the session is not, or no longer, known here')
    elseif last > sequence then
        return redis.error_reply('SESSIONOLD a newer call of this session was answered')
    elseif kept and last == sequence then
        replayed = sub(kept, 9)
    end
end
local function remember(answer)
    call('SET', session, sub(ARGV[2], 1, 8) .. answer, 'PX', life)
end
