#!lua flags=allow-oom
-- Moves timers of a slot to its children, the slots of the level below. Deletes the slot if no timer is left in it.
-- KEYS: clock slots slot children...
-- INCLUDE: _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  level of the slot, ARGV[3] its number; the keys `children` are its 64 children in order
-- ARGV[4]  number of timers after which to stop, at the end of a chunk
-- ARGV[5]  maximum number of timers in a chunk of a child
-- Reply    chunks left in the slot, then for each child written to: its index (from 0) and its length in chunks
-- Errors   FENCED; CORRUPT: a timer does not belong to the slot, and nothing was changed
-- Cost     O(1) for each timer, O(log slots) for each child
local read, sub = struct.unpack, string.sub
local level, first, enough, chunk_size = tonumber(ARGV[2]), ARGV[3] * 64, tonumber(ARGV[4]), tonumber(ARGV[5])
local width = 64 ^ (level - 1)
local moved, taken, window = 0, 0, 16
local under_way, sizes, finished = {}, {}, {}

local function close(place)
    local chunks = finished[place] or {}
    chunks[#chunks + 1] = table.concat(under_way[place])
    finished[place], under_way[place], sizes[place] = chunks, {}, 0
end

-- Adjacent timers of the same child are moved as one piece.
local function move(place, piece, count)
    local pieces = under_way[place]
    if not pieces then
        pieces = {}
        under_way[place], sizes[place] = pieces, 0
    end
    pieces[#pieces + 1] = piece
    sizes[place] = sizes[place] + count
    if sizes[place] >= chunk_size then
        close(place)
    end
end

repeat
    local chunks = redis.call('LRANGE', slot, taken, taken + window - 1)
    for n = 1, #chunks do
        local chunk, at, begin, count, place = chunks[n], 1, 1, 0, nil
        while at <= #chunk do
            local time, _, kind = read('>I6I4I2', chunk, at)
            local to = (time - time % width) / width - first
            if to < 0 or to > 63 then
                return redis.error_reply('CORRUPT slot ' .. level .. ':' .. ARGV[3] .. ' holds a timer of another slot')
            end
            if to ~= place or count + (sizes[to] or 0) >= chunk_size then
                if count > 0 then
                    move(place, sub(chunk, begin, at - 1), count)
                end
                place, begin, count = to, at, 0
            end
            at, count, moved = at + 12 + kind % 16384, count + 1, moved + 1
        end
        if count > 0 then
            move(place, sub(chunk, begin), count)
        end
        taken = taken + 1
        if moved >= enough then
            break
        end
    end
until #chunks < window or moved >= enough

for place, pieces in pairs(under_way) do
    if #pieces > 0 then
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
