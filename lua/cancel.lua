#!lua flags=allow-oom
-- Invisible, Pending or Running -> Cancelled. A Running one of an exclusive queue holds its value until its worker's next
-- call or the end of the lease, unless it is to be released at once.
-- KEYS: clock config messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _transition _pending
-- ARGV[1]  context (_context)
-- ARGV[2]  retention in ms I6, release at once B
-- ARGV[3]… names
-- Reply    one string: a result (code B, state B, version I4, until I6) for each: DONE, ALREADY, INVALID or NOT_FOUND
-- Errors   STALECONFIG
-- Cost     O(log N) for each message and pair; nothing is taken off the wheel
local retention, at_once = read('>I6B', ARGV[2])
local names, results = {}, {}
for n = 3, #ARGV do
    names[n - 2] = ARGV[n]
end
fetch(names)
for n, name in ipairs(names) do
    local record = found[name]
    if not record then
        results[n] = pack(RESULT, NOT_FOUND, 0, 0, 0)
    else
        local state, flags, version, attempts, incarnation, due, until_ms, digest, nonce = read(HEADER, record)
        local deadline, at = urgency(record, flags, due)
        if state == CANCELLED and band(flags, HELD) ~= 0 and at_once ~= 0 then
            release(name)
            flags = flags - HELD - OWNED
            put(name, pack(HEADER, state, flags, version, attempts, incarnation, due, now + retention, digest, nonce)
                .. sub(record, SECTIONS, at - 1))
            timer(2, now + retention, incarnation, version, name)
            results[n] = pack(RESULT, ALREADY, state, version, now + retention)
        elseif state == CANCELLED then
            results[n] = pack(RESULT, ALREADY, state, version, until_ms)
        elseif state == COMPLETED or state == ERRORED then
            results[n] = pack(RESULT, INVALID, state, version, until_ms)
        else
            if state == INVISIBLE then
                expect(until_ms, -1)
            elseif state == PENDING then
                local signature, indexed, blob = pairs_of(record, flags, at)
                leave(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
            elseif at_once ~= 0 then
                release(name)
            end
            if band(flags, BODY) ~= 0 then
                drop_body(name)
            end
            local left, owner = band(flags, EXPLICIT + BORN_PENDING), ''
            local kind, when = 2, now + retention
            if state == RUNNING and exclusive and at_once == 0 then
                left, owner = left + OWNED + HELD, sub(record, at, at + 16 + byte(record, at + 16))
                kind, when = 1, until_ms
            end
            put(name, pack(HEADER, CANCELLED, left, version + 1, attempts, incarnation, due, when, digest, nonce)
                .. sub(record, SECTIONS, at - 1) .. owner)
            timer(kind, when, incarnation, version + 1, name)
            event(name, incarnation, version + 1, state, CANCELLED, attempts, 0, '')
            results[n] = pack(RESULT, DONE, CANCELLED, version + 1, when)
        end
    end
end
commit('')
return table.concat(results)
