#!lua flags=allow-oom
-- Leases the most urgent Pending messages: earliest deadline first, all of them or those that carry every pair asked for.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _session _transition _pending _match _walk
-- ARGV[1]  context (_context); option HEADS asks for the next deadline too
-- ARGV[2]  session (_session)
-- ARGV[3]  limit I2, lease of the call I4 (0: the message's, else the queue's), lease of the queue I4, bytes to answer I4,
--          entries to walk I4, token c16, worker (the rest)
-- ARGV[4]  cursor of a split walk, else empty
-- ARGV[5]  empty, or signature c8 and the pairs asked for, each I2c0
-- Reply    {head, cursor, then name, record and body of each message}; head: now I6, status B, next deadline I8 (2^53-1: none).
--          Status 0: final; 1: nothing found yet, call again with the cursor; 2: a repeated call, an empty record is one
--          no longer held; 3: there may be more, this call was at its limit of bytes or entries
-- Errors   STALECONFIG, BLOCKED, SESSIONEXPIRED, SESSIONOLD
-- Cost     O(log N) for each message and pair, and the entries walked; without a match nothing is written
local limit, call_lease, queue_lease, room, budget, token, worker_at = read('>I2I4I4I4I4c16', ARGV[3])
local FINAL, MORE, REPEATED, SHORT = 0, 1, 2, 3
local worker = sub(ARGV[3], worker_at)
local NO_DEADLINE = 9007199254740991

local function head(status)
    local following = NO_DEADLINE
    if band(options, HEADS) ~= 0 then
        local first = redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')
        following = first[2] and first[2] + BIAS or following
    end
    return pack('>I6BI8', now, status, following)
end

if replayed then
    local answer, at = { head(REPEATED), '' }, 17
    token = sub(replayed, 1, 16)
    while at <= #replayed do
        local name
        name, at = read('>I2c0', replayed, at)
        local record, body = redis.call('HGET', messages, queue_number .. name) or '', ''
        if record ~= '' then
            local state, flags, _, _, _, due = read(HEADER, record)
            local _, owner_at = urgency(record, flags, due)
            if state ~= RUNNING or sub(record, owner_at, owner_at + 15) ~= token then
                record = ''
            elseif band(flags, BODY) ~= 0 then
                body = redis.call('HGET', bodies, queue_number .. name)
            end
        end
        answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = name, record, body
    end
    return answer
end

local names, cursor, short
if ARGV[5] == '' then
    names = redis.call('ZRANGE', ready, 0, limit - 1)
    for n = 1, #names do
        names[n] = sub(names[n], 7)
    end
else
    names, cursor, short = walk(ARGV[5], ARGV[4], limit, budget)
end
if #names == 0 then
    if keep_empty ~= 0 and not cursor then
        remember(token)
    end
    return { head(cursor and MORE or FINAL), cursor or '' }
end

fetch(names)
local answer, kept, lease_header = { '', '' }, { token }, token .. pack('>Bc0', #worker, worker)
for _, name in ipairs(names) do
    local record, body = found[name], ''
    local state, flags, version, attempts, incarnation, due, _, digest, nonce = read(HEADER, record)
    if band(flags, BODY) ~= 0 then
        body = redis.call('HGET', bodies, queue_number .. name)
    end
    local deadline, at = urgency(record, flags, due)
    local signature, indexed, blob = pairs_of(record, flags, at)
    room, budget = room - #record - #body, budget - 1 - indexed
    if (room < 0 or budget < 0) and #kept > 1 then
        short = true
        break
    end
    take(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
    local lease = call_lease
    if lease == 0 and band(flags, OVERRIDES) ~= 0 then
        lease = read('>I4', record, at)
    end
    lease = lease > 0 and lease or queue_lease
    record = pack(HEADER, RUNNING, flags + OWNED, version + 1, attempts + 1, incarnation, due, now + lease, digest, nonce)
        .. sub(record, SECTIONS, at - 1) .. lease_header .. sub(record, at)
    put(name, record)
    timer(1, now + lease, incarnation, version + 1, name)
    event(name, incarnation, version + 1, state, RUNNING, attempts + 1, 128, pack('>I6', math.max(now - due, 0)))
    if band(flags, EXPLICIT) ~= 0 then
        tally.deadlines = (tally.deadlines or 0) + 1
        if now > deadline then
            record_lateness('missed:', now - deadline)
        end
    end
    kept[#kept + 1] = pack('>I2c0', #name, name)
    answer[#answer + 1] = name
    answer[#answer + 1] = record
    answer[#answer + 1] = body
end
remember(table.concat(kept))
commit(worker)
answer[1] = head(short and SHORT or FINAL)
return answer
