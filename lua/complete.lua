#!lua flags=allow-oom
-- Running -> Completed, by the holder of the lease. The payload and metadata go; the header is kept for the retention.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _transition _pending _lease
-- ARGV[1]  context (_context)
-- ARGV[2]  not used (a complete is told apart by token and state)
-- ARGV[3]  retention in ms I6
-- ARGV[4]… token c16 .. name, for each message
-- Reply    one string: a result (code B, state B, version I4, kept until I6) for each: DONE, ALREADY, LOST or NOT_FOUND
-- Errors   STALECONFIG
-- Cost     O(1) for each message of a plain queue, O(log N) of an exclusive one
fetch(names)
local retention = read('>I6', ARGV[3])
local results = {}
for n, name in ipairs(names) do
    local record, token = found[name], tokens[n]
    local state, flags, version, attempts, incarnation, due, kept, digest, nonce, at, _
    if record then
        state, flags, version, attempts, incarnation, due, kept, digest, nonce = read(HEADER, record)
        _, at = urgency(record, flags, due)
    end
    if not record or not owner_is(record, flags, at, token) or (state ~= RUNNING and state ~= COMPLETED) then
        results[n] = refusal(name, record, token, retention)
    elseif state == COMPLETED then
        results[n] = pack(RESULT, ALREADY, state, version, kept)
    else
        if band(flags, BODY) ~= 0 then
            drop_body(name)
        end
        put(name, pack(HEADER, COMPLETED, band(flags, EXPLICIT + OWNED + BORN_PENDING), version + 1, attempts, incarnation,
            due, now + retention, digest, nonce) .. sub(record, SECTIONS, at + 15) .. '\0')
        release(name)
        timer(2, now + retention, incarnation, version + 1, name)
        event(name, incarnation, version + 1, RUNNING, COMPLETED, attempts, 0, '')
        results[n] = pack(RESULT, DONE, COMPLETED, version + 1, now + retention)
    end
end
commit('')
return table.concat(results)
