#!lua flags=allow-oom
-- Running -> Completed, by the holder of the lease. Payload and metadata are deleted. The rest of the record is kept
-- for the retention, with the result if there is one. If the call passes results, the ended messages are announced.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake ended
-- INCLUDE: _constants _record _clock _queue_context _require_current_config _transition _ready_indexes _readable_records _held_leases _ended
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  not used (a retried call is recognised by the tokens and states of its messages)
-- ARGV[3]  retention in ms I6; then, if the call passes results, a string I2c0 for each message: the section ERROR of
--          the record (_record), which also stores results, or empty if this message has no result
-- ARGV[4]… tokens and fields of the messages (_held_leases)
-- Reply    one string, with a code B for each message: DONE, ALREADY, LOST or NOT_FOUND
-- Errors   STALECONFIG, STREAMENDED
-- Cost     O(log N) for each message of an exclusive queue, O(1) of other queues
local retention, results_at = read('>I6', ARGV[3])
local has_results = #ARGV[3] >= results_at
local retained_until = now + retention
local results = {}
for n = 1, #fields do
    local field = fields[n]
    local record = current_record(field, records[n])
    local state = record and byte(record)
    local flags, version, attempts, token, incarnation, at, _
    local result = ''
    if has_results then
        result, results_at = read('>I2c0', ARGV[3], results_at)
    end
    if state == RUNNING or state == COMPLETED then
        _, flags, version, attempts, _, token, _, incarnation, at = read(LEASED, record)
        at = at - 6
    end
    if token ~= tokens[n] then
        results[n] = sub(result_of_lost_lease(n, record, retention), 1, 1)
    elseif state == COMPLETED then
        results[n] = '\1'
    else
        local last = at + 23
        if band(flags, ANY_SECTION) ~= 0 then
            if band(flags, BODY) ~= 0 then
                removed_bodies[#removed_bodies + 1] = body_field(field, record, at)
            end
            last = band(flags, EXPLICIT) ~= 0 and at + 31 or last
            flags = band(flags, EXPLICIT + OWNED + BORN_PENDING)
        end
        if result ~= '' then
            flags = flags + ERROR
        end
        put(field, pack(HEAD, COMPLETED, flags, version + 1, attempts, retained_until)
            .. token .. '\0' .. sub(record, at, last) .. result)
        if exclusive then
            free_value(field)
        end
        add_event(add_timer(2, retained_until, incarnation, version + 1, field),
            incarnation, version + 1, RUNNING, COMPLETED, attempts)
        results[n] = '\0'
        if has_results then
            add_ended(field)
        end
    end
end
local failure = commit('')
if failure then
    return failure
end
announce_ended()
return table.concat(results)
