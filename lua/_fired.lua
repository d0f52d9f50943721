-- The timers that fired, in ARGV[4]: time I6, queue I2, generation I4, kind and length I2, name; one after the other.
-- Needs: _record, _leader, _transition.
local FINAL, EARLY, UNHANDLED = '\0', '\1', '\2'
local names, times, generations, answered = {}, {}, {}, {}
do
    local at, batch = 1, ARGV[4]
    while at <= #batch do
        local length, n = read('>I2', batch, at + 12) % 16384, #names + 1
        names[n], generations[n] = sub(batch, at + 14, at + 13 + length), sub(batch, at + 8, at + 11)
        times[n], answered[n] = read('>I6', batch, at), UNHANDLED
        at = at + 14 + length
    end
    fetch(names)
end

local function stale(n, incarnation, version)
    return generations[n] ~= pack('>I2I2', incarnation % 65536, version % 65536)
end

-- Its time is not reached: the timer is asked again, or, where the message's time has moved, goes back to the inbox.
local function not_yet(n, kind, until_ms, incarnation, version)
    if times[n] == until_ms then
        return EARLY
    end
    timer(kind, until_ms, incarnation, version, names[n])
    return FINAL
end

-- A call touches a bounded number of index entries, but at least one message.
local function spend(entries)
    local enough = entries_left > 0
    entries_left = entries_left - entries
    return enough
end
