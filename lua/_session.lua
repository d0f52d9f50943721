-- The client's session, in ARGV[2]: sequence I8, life in ms I4, whether an empty answer is kept B. The key holds the
-- last sequence and its answer, so a repeated call changes nothing more (client sessions: Ongaro, Raft, 6.3).
local sequence, life, keep_empty = read('>I8I4B', ARGV[2])
local replayed
do
    local kept = call('GET', session)
    if not kept then
        return redis.error_reply('SESSIONEXPIRED the session is not, or no longer, known here')
    end
    local last = read('>I8', kept)
    if last > sequence then
        return redis.error_reply('SESSIONOLD a newer call of this session was answered')
    end
    if last == sequence then
        replayed = sub(kept, 9)
    end
end
local function remember(answer)
    call('SET', session, sub(ARGV[2], 1, 8) .. answer, 'PX', life)
end
