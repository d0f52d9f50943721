#!lua flags=allow-oom
-- Pending -> Running, for the most urgent messages (earliest deadline first). With a filter, only messages that carry
-- every pair of the filter.
-- KEYS: clock config session messages bodies inbox events counts lateness ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _queue_context _empty_queue_exit _session _record _clock _transition _ready_indexes _filter_match _filter_walk
-- ARGV[1]  context (_queue_context); with the option HEADS the reply contains the next deadline
-- ARGV[2]  session (_session)
-- ARGV[3]  limit I2, lease of the call I4 (0: the message's, else the queue's), lease of the queue I4, maximum bytes of
--          records I4, maximum bytes of payloads in `bodies` I4, budget in index entries I4 (an entry that is read
--          counts 1, an entry that is written WEIGHT, see _ready_indexes), token c16, worker (the rest)
-- ARGV[4]  with a filter: its signature c8 (_filter_match) and its pairs, each I2c0
-- ARGV[5]  after a reply of status 1: the cursor of that reply
-- Reply    nil or {} if _empty_queue_exit ends the call, else {head, cursor, then field and record of each message};
--          head: status B, next deadline I8 (sent as deadline + 2^52; 2^53-1: none), now I8.
--          Status 0: final; 1: nothing found yet, call again with the cursor; 2: the messages of a retried call, with
--          an empty record for each message that is no longer leased by that call; 3: there may be more messages,
--          because this call reached a maximum of bytes or the end of its budget
-- Errors   STALECONFIG, STREAMENDED, BLOCKED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL
-- Cost     O(log N) for each message and pair, and the entries walked
local limit, call_lease, queue_lease, record_bytes_left, body_bytes_left, budget, token, worker_at =
    read('>I2I4I4I4I4I4c16', ARGV[3])
local worker = sub(ARGV[3], worker_at)
local FINAL, MORE, REPEATED, SHORT, NO_DEADLINE, REPLAYS = 0, 1, 2, 3, 9007199254740991, 8

local function pack_head(status)
    local next_deadline = NO_DEADLINE
    if band(options, HEADS) ~= 0 then
        local first_entry = call('ZRANGE', ready, 0, 0, 'WITHSCORES')
        next_deadline = first_entry[2] and first_entry[2] + BIAS or next_deadline
    end
    return pack('>BI8I8', status, next_deadline, now)
end

if stored_answer then
    local reply, at = { pack_head(REPEATED), '' }, 17
    token = sub(stored_answer, 1, 16)
    -- The test of the lengths is for answers without a digest, which clients of earlier versions stored.
    local stored_end = #stored_answer + 1
    if stored_end < at then
        return refuse(OTHER_CALL)
    end
    while at < stored_end do
        if at + 2 > stored_end or at + 2 + read('>I2', stored_answer, at) > stored_end then
            return refuse(OTHER_CALL)
        end
        local field
        field, at = read('>I2c0', stored_answer, at)
        local record = call('HGET', messages, field) or ''
        if record ~= '' and (byte(record) ~= RUNNING or sub(record, AFTER_HEAD, 30) ~= token) then
            record = ''
        end
        reply[#reply + 1], reply[#reply + 2] = field, record
    end
    return reply
elseif band(session_options, REPLAYS) ~= 0 then
    -- A retry asks whether its first call had this part. The stored answer refuses a late copy of the first call.
    store_answer(token)
    return { pack_head(REPEATED), '' }
end

local refusal = refusal_of_caller()
if refusal then
    return refusal
end
local fields, cursor, may_have_more
local removes_by_rank = not ARGV[4] and not exclusive
if not ARGV[4] then
    fields = call('ZRANGE', ready, 0, limit - 1)
    for n = 1, #fields do
        fields[n] = sub(fields[n], 7)
    end
else
    fields, cursor, may_have_more = walk(ARGV[4], ARGV[5] or '', limit, budget)
end
if #fields == 0 then
    if stores_empty and not cursor then
        store_answer(token)
    end
    return { pack_head(cursor and MORE or FINAL), cursor or '' }
end

-- Removes the index entries of messages that cannot be delivered: there is no readable record of a Pending message.
-- Without this, every later call would find them first. Returns whether any entry was removed.
local function remove_entries(undeliverable)
    local index, name_at, entries, removed_count, pair = ready, 9, nil, 0, nil
    if ARGV[4] then
        pair = parse_filter(ARGV[4])[1]
        index, name_at = pairs, #pair + 23
        entries = call('ZRANGEBYLEX', pairs, '[' .. pair, '(' .. pair .. '\255', 'LIMIT', 0, 2000)
    else
        entries = call('ZRANGE', ready, 0, limit - 1)
    end
    for n = 1, #entries do
        local name = sub(entries[n], name_at)
        if undeliverable[name] then
            removed_count = removed_count + call('ZREM', index, entries[n])
            -- Fails if the name is damaged.
            pcall(drop_undeliverable, queue_number .. name, pair, entries[n])
        end
    end
    return removed_count > 0
end

local records, undeliverable = fetch_records(fields), nil
local reply, owner = { '', '' }, token .. pack('>Bc0', #worker, worker)
-- The session stores the token, then for each message the length of its field and the field.
local session_parts, lengths, leased_count = { token }, {}, 0
for n = 1, #fields do
    local field, record, body_size, lease = fields[n], records[n], 0, call_lease
    local is_readable, state, flags, version, attempts, _, fixed, incarnation, due,
        deadline, rank, signature, pair_count, packed_pairs, at = pcall(parse_record, field, record)
    if not is_readable or state ~= PENDING or fixed ~= AFTER_HEAD then
        undeliverable = undeliverable or {}
        undeliverable[sub(field, 3)] = true
    else
        if band(flags, BODY) ~= 0 then
            body_size = call('HSTRLEN', bodies, body_field(field, record, AFTER_HEAD))
        end
        record_bytes_left, body_bytes_left, budget =
            record_bytes_left - #record, body_bytes_left - body_size, budget - WEIGHT * (1 + pair_count)
        if (record_bytes_left < 0 or body_bytes_left < 0 or budget < 0) and leased_count > 0 then
            may_have_more = true
            break
        end
        if pair_count > 0 or not removes_by_rank then
            lease_pending(field, deadline, rank, signature, pair_count, packed_pairs)
        end
        if lease == 0 and band(flags, OVERRIDES) ~= 0 then
            lease = read('>I4', record, at)
        end
        local lease_until = now + (lease > 0 and lease or queue_lease)
        record = pack(HEAD, RUNNING, flags + OWNED, version + 1, attempts + 1, lease_until)
            .. owner .. sub(record, AFTER_HEAD)
        put(field, record)
        add_event(add_timer(1, lease_until, incarnation, version + 1, field),
            incarnation, version + 1, PENDING, RUNNING, attempts + 1, now > due and now - due or 0)
        if band(flags, EXPLICIT) ~= 0 then
            deadline_count = deadline_count + 1
            if now > deadline then
                missed_histogram[now - deadline] = (missed_histogram[now - deadline] or 0) + 1
            end
        end
        leased_count = leased_count + 1
        local length = lengths[#field] or pack('>I2', #field)
        lengths[#field] = length
        session_parts[leased_count * 2] = length
        session_parts[leased_count * 2 + 1] = field
        reply[leased_count * 2 + 1] = field
        reply[leased_count * 2 + 2] = record
    end
end
if undeliverable then
    may_have_more = remove_entries(undeliverable) or may_have_more
    if leased_count == 0 then
        local failure = commit(worker)
        if not failure and not may_have_more and stores_empty then
            store_answer(token)
        end
        return failure or { pack_head(may_have_more and MORE or FINAL), '' }
    end
end
if removes_by_rank then
    ready_removed, leased_in_order = {}, leased_count
end
local failure = commit(worker)
if failure then
    return failure
end
store_answer(table.concat(session_parts))
reply[1] = pack_head(may_have_more and SHORT or FINAL)
return reply
