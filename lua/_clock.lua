-- Reads the shard's clock, which is the clock of its server. Defines `now`, in ms since 1970.
local now
do
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
