-- Reads the fired timers from ARGV[4], a sequence of: time I6, generation I4, kind and length I2, field.
-- Needs: _record, _driver_context, _transition.
local FINAL, EARLY, UNHANDLED = '\0', '\1', '\2'
local fields, records, times, generations, answered = {}, nil, {}, {}, {}
do
    local at, batch, n = 1, ARGV[4], 1
    while at <= #batch do
        local time, generation, length, start = read('>I6I4I2', batch, at)
        at = start + length % 16384
        fields[n], times[n], generations[n], answered[n] = sub(batch, start, at - 1), time, generation, UNHANDLED
        n = n + 1
    end
    records = fetch(fields)
end

local function stale(n, incarnation, version)
    return generations[n] ~= incarnation % 65536 * 65536 + version % 65536
end

-- Handles a timer whose message is not due yet: the driver fires the timer again. If the message's time has moved, a new
-- timer goes to the inbox instead.
local function not_yet(n, kind, until_ms, incarnation, version)
    if times[n] == until_ms then
        return EARLY
    end
    timer(kind, until_ms, incarnation, version, fields[n])
    return FINAL
end
