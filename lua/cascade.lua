#!lua flags=allow-oom
-- Moves timers of a slot to its children, one level down; a slot that is empty then is gone.
-- KEYS: clock slots slot children...
-- INCLUDE: _fence
-- ARGV[1]  fence I8 I8 (_fence)
-- ARGV[2]  the slot's level, ARGV[3] its number; `children` are its 64 in order
-- ARGV[4]  after how many timers to stop, at the end of a chunk
-- ARGV[5]  how many timers a chunk of a child holds at most
-- Reply    chunks left in the slot, then for each child written to: its place (from 0) and its length
-- Errors   FENCED; CORRUPT: a timer does not belong to the slot, nothing was changed
-- Cost     O(1) for each timer, O(log slots) for each child
local level, first, enough, chunk_size = tonumber(ARGV[2]), ARGV[3] * 64, tonumber(ARGV[4]), tonumber(ARGV[5])
local width, head = 64 ^ (level - 1), '>I6I4I2'
local moved, taken, window = 0, 0, 16
local under_way, finished = {}, {}

local function close(place)
    local chunks = finished[place] or {}
    chunks[#chunks + 1] = table.concat(under_way[place])
    finished[place], under_way[place] = chunks, {}
end

repeat
    local chunks = redis.call('LRANGE', slot, taken, taken + window - 1)
    for n = 1, #chunks do
        local chunk, at = chunks[n], 1
        while at <= #chunk do
            local time, _, kind = struct.unpack(head, chunk, at)
            local after, place = at + 12 + kind % 16384, math.floor(time / width) - first
            if place < 0 or place > 63 then
                return redis.error_reply('CORRUPT slot ' .. level .. ':' .. ARGV[3] .. ' holds a timer of another slot')
            end
            local timers = under_way[place]
            if not timers then
                timers = {}
                under_way[place] = timers
            end
            timers[#timers + 1] = string.sub(chunk, at, after - 1)
            if #timers == chunk_size then
                close(place)
            end
            at, moved = after, moved + 1
        end
        taken = taken + 1
        if moved >= enough then
            break
        end
    end
until #chunks < window or moved >= enough

for place, timers in pairs(under_way) do
    if #timers > 0 then
        close(place)
    end
end
local reply = { 0 }
for place, chunks in pairs(finished) do
    reply[#reply + 1] = place
    reply[#reply + 1] = redis.call('RPUSH', children[place + 1], unpack(chunks))
    local number = first + place
    redis.call('ZADD', slots, 'NX', number * width, string.format('%d:%.0f', level - 1, number))
end
if taken > 0 then
    redis.call('LTRIM', slot, taken, -1)
end
reply[1] = redis.call('LLEN', slot)
if reply[1] == 0 then
    redis.call('ZREM', slots, level .. ':' .. ARGV[3])
end
return reply
