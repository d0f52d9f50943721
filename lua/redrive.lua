#!lua
-- Errored -> Pending, with its attempts counted from zero.
-- KEYS: clock config session messages bodies inbox events counts lateness forecast ready waiting locks pairs vpairs parked wake
-- INCLUDE: _clock _record _context _session _transition _pending
-- ARGV[1]  context (_context)
-- ARGV[2]  session (_session)
-- ARGV[3]… names
-- Reply    one string: a result (code B, state B, version I4, now I6) for each: DONE, INVALID or NOT_FOUND
-- Errors   STALECONFIG, SESSIONEXPIRED, SESSIONOLD; out of memory, refused before it starts
-- Cost     O(log N) for each message and pair
if replayed then
    return replayed
end
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
        local state, flags, version, _, incarnation, due, until_ms, digest, nonce = read(HEADER, record)
        if state ~= ERRORED then
            results[n] = pack(RESULT, INVALID, state, version, until_ms)
        else
            local deadline, at = urgency(record, flags, due)
            put(name, pack(HEADER, PENDING, flags, version + 1, 0, incarnation, due, now, digest, nonce) .. sub(record, SECTIONS))
            local signature, indexed, blob = pairs_of(record, flags, at)
            enter(name, deadline, rank_of(flags, incarnation), signature, indexed, blob)
            event(name, incarnation, version + 1, ERRORED, PENDING, 0, 0, '')
            results[n] = pack(RESULT, DONE, PENDING, version + 1, now)
        end
    end
end
local answer = table.concat(results)
remember(answer)
commit('')
return answer
