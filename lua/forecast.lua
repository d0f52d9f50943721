#!lua flags=no-writes
-- Returns the number of messages that are due in each of the next minutes. Messages are counted when they become Invisible
-- and subtracted when they leave that state.
-- KEYS: clock forecast
-- INCLUDE: _clock
-- ARGV[1]  minutes, 1 to 1,440
-- Reply    {now I6, count of this minute, of the next, …}; messages that are overdue and still Invisible are in no minute
-- Cost     O(minutes)
local first, fields = math.floor(now / 60000), {}
for n = 1, tonumber(ARGV[1]) do
    fields[n] = first + n - 1
end
local found = redis.call('HMGET', forecast, unpack(fields))
for n = 1, #fields do
    found[n] = tonumber(found[n]) or 0
end
return { struct.pack('>I6', now), unpack(found) }
