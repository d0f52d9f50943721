#!lua flags=no-writes
-- Returns the number of messages that are due in the current minute and in each of the following minutes. A message is
-- counted while it is Invisible.
-- KEYS: clock forecast
-- INCLUDE: _clock
-- ARGV[1]  minutes, 1 to 1,440
-- Reply    {now I6, count of this minute, of the next, …}; messages that were due in an earlier minute are not counted
-- Cost     O(minutes)
local first, fields = math.floor(now / 60000), {}
for n = 1, tonumber(ARGV[1]) do
    fields[n] = first + n - 1
end
local minute_counts = redis.call('HMGET', forecast, unpack(fields))
for n = 1, #fields do
    minute_counts[n] = tonumber(minute_counts[n]) or 0
end
return { struct.pack('>I6', now), unpack(minute_counts) }
