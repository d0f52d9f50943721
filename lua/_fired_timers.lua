-- Reads the fired timers from ARGV[4], a sequence of: time I6, generation I4, kind * 16384 + length of the field I2,
-- field (see `pack_mark` in _transition).
-- Needs: _record, _driver_context, _transition.
local FINAL, EARLY, UNHANDLED, UNREADABLE = '\0', '\1', '\2', '\3'
local fields, records, times, generations, answers = {}, nil, {}, {}, {}
do
    local at, batch, n = 1, ARGV[4], 1
    while at <= #batch do
        local time, generation, kind_and_length, start = read('>I6I4I2', batch, at)
        at = start + kind_and_length % 16384
        fields[n], times[n], generations[n], answers[n] = sub(batch, start, at - 1), time, generation, UNHANDLED
        n = n + 1
    end
    records = fetch_records(fields)
end

local function is_stale_timer(n, incarnation, version)
    return generations[n] ~= incarnation % 65536 * 65536 + version % 65536
end

-- Returns the answer for a timer that fired before `until_ms`, the time of its message. If the timer was set for
-- `until_ms`, it fired too early, and the driver must fire it again (EARLY). Otherwise the message's time has moved,
-- and a new timer goes to the inbox.
local function answer_early_timer(n, kind, until_ms, incarnation, version)
    if times[n] == until_ms then
        return EARLY
    end
    add_timer(kind, until_ms, incarnation, version, fields[n])
    return FINAL
end
