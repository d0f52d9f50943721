#!lua flags=allow-oom
-- Pending -> Running, for the most urgent messages (earliest deadline first). With a filter, only messages that carry
-- every pair of the filter.
-- KEYS: clock config session messages bodies inbox events counts lateness ready waiting locks pairs vpairs parked wake
-- INCLUDE: _constants _queue_context _empty_queue_exit _session _record _clock _transition _ready_indexes _filter_match _filter_walk
-- ARGV[1]  context (_queue_context); with the option HEADS the reply contains the next deadline
-- ARGV[2]  session (_session)
-- ARGV[3]  limit I2, lease of the call I4 (0: the message's, else the queue's), lease of the queue I4, maximum bytes of
--          records I4, maximum bytes of payloads in `bodies` I4, budget in index entries I4, token c16, worker (the
--          rest)
-- ARGV[4]  with a filter: signature c8 and the pairs of the filter, each I2c0
-- ARGV[5]  to continue a split walk: its cursor
-- Reply    nil or {} if _empty_queue_exit ends the call, else {head, cursor, then field and record of each message};
--          head: status B, next deadline I8 (+ 2^52; 2^53-1: none), now I8.
--          Status 0: final; 1: nothing found yet, call again with the cursor; 2: the messages of a retried call, with
--          an empty record for each message that is no longer leased by that call; 3: there may be more messages,
--          because this call reached a maximum of bytes or the end of its budget
-- Errors   STALECONFIG, BLOCKED, SESSIONEXPIRED, SESSIONOLD
-- Cost     O(log N) for each message and pair, and the entries walked
local limit, call_lease, queue_lease, room, beside, budget, token, worker_at = read('>I2I4I4I4I4I4c16', ARGV[3])
local worker = sub(ARGV[3], worker_at)
local FINAL, MORE, REPEATED, SHORT, NO_DEADLINE = 0, 1, 2, 3, 9007199254740991

local function head(status)
    local following = NO_DEADLINE
    if band(options, HEADS) ~= 0 then
        local first = call('ZRANGE', ready, 0, 0, 'WITHSCORES')
        following = first[2] and first[2] + BIAS or following
    end
    return pack('>BI8I8', status, following, now)
end

if replayed then
    local answer, at = { head(REPEATED), '' }, 17
    token = sub(replayed, 1, 16)
    while at <= #replayed do
        local field
        field, at = read('>I2c0', replayed, at)
        local record = call('HGET', messages, field) or ''
        if record ~= '' and (byte(record) ~= RUNNING or sub(record, UNOWNED, 30) ~= token) then
            record = ''
        end
        answer[#answer + 1], answer[#answer + 2] = field, record
    end
    return answer
end

local refused = refusal_of_caller()
if refused then
    return refused
end
local fields, cursor, short
local by_rank = not ARGV[4] and not exclusive
if not ARGV[4] then
    fields = call('ZRANGE', ready, 0, limit - 1)
    for n = 1, #fields do
        fields[n] = sub(fields[n], 7)
    end
else
    fields, cursor, short = walk(ARGV[4], ARGV[5] or '', limit, budget)
end
if #fields == 0 then
    if keeps_empty and not cursor then
        remember(token)
    end
    return { head(cursor and MORE or FINAL), cursor or '' }
end

local records = fetch(fields)
local answer, owner = { '', '' }, token .. pack('>Bc0', #worker, worker)
-- The session stores the token, then for each message the length of its field and the field.
local kept, lengths, leased = { token }, {}, 0
for n = 1, #fields do
    local field, record, body, lease = fields[n], records[n], 0, call_lease
    local _, flags, version, attempts, _, incarnation, due = read(WHOLE, record)
    local deadline, rank, signature, indexed, blob, at = sections_of(record, flags, UNOWNED, incarnation, due)
    if band(flags, BODY) ~= 0 then
        body = call('HSTRLEN', bodies, body_of(field, record, UNOWNED))
    end
    room, beside, budget = room - #record, beside - body, budget - WEIGHT * (1 + indexed)
    if (room < 0 or beside < 0 or budget < 0) and n > 1 then
        short = true
        break
    end
    if indexed > 0 or not by_rank then
        take(field, deadline, rank, signature, indexed, blob)
    end
    if lease == 0 and band(flags, OVERRIDES) ~= 0 then
        lease = read('>I4', record, at)
    end
    local lease_until = now + (lease > 0 and lease or queue_lease)
    record = pack(HEAD, RUNNING, flags + OWNED, version + 1, attempts + 1, lease_until) .. owner .. sub(record, UNOWNED)
    put(field, record)
    event(timer(1, lease_until, incarnation, version + 1, field), incarnation, version + 1, PENDING, RUNNING, attempts + 1,
        now > due and now - due or 0)
    if band(flags, EXPLICIT) ~= 0 then
        with_deadline = with_deadline + 1
        if now > deadline then
            missed[now - deadline] = (missed[now - deadline] or 0) + 1
        end
    end
    local length = lengths[#field] or pack('>I2', #field)
    lengths[#field] = length
    kept[n * 2] = length
    kept[n * 2 + 1] = field
    answer[n * 2 + 1] = field
    answer[n * 2 + 2] = record
    leased = n
end
if by_rank then
    call('ZREMRANGEBYRANK', ready, 0, leased - 1)
    ready_removed = {}
end
remember(table.concat(kept))
commit(worker)
answer[1] = head(short and SHORT or FINAL)
return answer
