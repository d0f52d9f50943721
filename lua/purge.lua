#!lua flags=allow-oom
-- Invisible, Pending or Running -> Cancelled.
-- Completed, Cancelled or Errored -> gone. A message that this call cancels is gone at the end of the call, too.
-- A call reads one page of the shard's messages. If a call reaches its budget in the middle of the page, the reply
-- contains the cursor of the same page: the next call finds only the rest of the messages.
-- A purge that begins on this shard ends at once if all counts of the states are 0.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake call_digest?
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _session _transition _ready_indexes _readable_records _session_replay _require_outbox_room _scan_cursor
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  session (_session)
-- ARGV[3]  states of the messages to remove B (bit n: state n), messages of a page I2, maximum number of messages to
--          remove I2, budget in index entries I4 (WEIGHT in _ready_indexes)
-- ARGV[4]  cursor of the page: 0, or the cursor of the previous reply (_scan_cursor)
-- Reply    one string: number of removed messages I4, then the cursor of the next call; empty if there is no
--          further page
-- Errors   STALECONFIG, STREAMENDED, SESSIONEXPIRED, SESSIONOLD, OTHERCALL, OUTBOXFULL
-- Cost     O(messages of a page), O(log N) for each removed message and pair
local states, page_size, messages_left, entries_left = read('>BI2I2I4', ARGV[3])
local names_and_records, next_cursor, same_cursor = {}, '', ''
-- A shard may have many messages of other queues. A count that is no number does not prove that there are no messages.
local has_messages = ARGV[4] ~= '0'
for state, count in ipairs(call('HMGET', counts, 1, 2, 3, 4, 5, 6)) do
    has_messages = has_messages or band(states, 2 ^ state) ~= 0 and count and count ~= '0'
end
if has_messages then
    names_and_records, next_cursor, same_cursor = scan_page(queue_number, ARGV[4], page_size)
end
-- Frees the exclusive value if the message holds it, which its record does not show.
local function free_value_of_damaged(field)
    local has_name, value, id_at = pcall(read, '>I2c0', field, 3)
    if exclusive and has_name and call('HGET', locks, value) == 'R' .. sub(field, id_at) then
        free_value(field)
    end
end

for n = 1, #names_and_records, 2 do
    local field, record = names_and_records[n], names_and_records[n + 1]
    local is_readable, state, flags, version, attempts, until_ms, fixed, incarnation, _,
        deadline, rank, signature, pair_count, packed_pairs = pcall(parse_record, field, record)
    -- While a cancelled message holds its exclusive value, its worker may still run it, as if the message was Running.
    local holds_value = is_readable and band(flags, HELD) ~= 0
    if not is_readable then
        -- The message can never be delivered, and an event cannot describe it. A state that does not exist belongs to
        -- every purge.
        state = byte(record) or 0
        local exists = state >= INVISIBLE and state <= ERRORED
        if changed_records[field] == nil and (not exists or band(states, 2 ^ state) ~= 0) then
            changed_records[field] = false
            removed_messages[#removed_messages + 1] = field
            if exists then
                transition_counts[state * 8] = (transition_counts[state * 8] or 0) + 1
            end
            free_value_of_damaged(field)
        end
    -- A page may contain a message twice.
    elseif changed_records[field] == nil and band(states, 2 ^ (holds_value and RUNNING or state)) ~= 0 then
        pair_count = state == PENDING and pair_count or 0
        entries_left, messages_left = entries_left - WEIGHT * (1 + pair_count), messages_left - 1
        if (entries_left < 0 or messages_left < 0) and #removed_messages > 0 then
            next_cursor = same_cursor
            break
        end
        changed_records[field] = false
        removed_messages[#removed_messages + 1] = field
        if state == INVISIBLE then
            add_to_forecast(until_ms, -1)
        elseif state == PENDING then
            remove_pending(field, deadline, rank, signature, pair_count, packed_pairs)
        elseif state == RUNNING or holds_value then
            free_value(field)
        end
        if band(flags, BODY) ~= 0 then
            removed_bodies[#removed_bodies + 1] = body_field(field, record, fixed)
        end
        if state < COMPLETED then
            version = version + 1
            add_event(pack_mark(2, now, incarnation, version, field), incarnation, version, state, CANCELLED, attempts)
            state = CANCELLED
        end
        add_event(pack_mark(2, now, incarnation, version + 1, field), incarnation, version + 1, state, 0, attempts)
    end
end
results[1] = pack('>I4', #removed_messages) .. next_cursor
return finish_call()
