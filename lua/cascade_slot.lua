#!lua flags=allow-oom
-- Moves timers of a slot to its children, the slots of the level below. Deletes the slot if no timer is left in it. A
-- slot is a list of chunks; a chunk is a string of packed timers.
-- KEYS: clock slots slot children...
-- INCLUDE: _require_fence
-- ARGV[1]  fence I8 I8 (_require_fence)
-- ARGV[2]  level of the slot, ARGV[3] its number; the keys `children` are its 64 children in order
-- ARGV[4]  stop at the end of the chunk in which this number of timers is reached
-- ARGV[5]  maximum number of timers in a chunk of a child
-- Reply    chunks left in the slot, then for each child written to: its index (from 0) and its length in chunks
-- Errors   FENCED; CORRUPT: a timer does not belong to the slot, and nothing was changed
-- Cost     O(1) for each timer, O(log slots) for each child
local read, sub = struct.unpack, string.sub
local level, first_child, stop_after, chunk_size = tonumber(ARGV[2]), ARGV[3] * 64, tonumber(ARGV[4]), tonumber(ARGV[5])
local width = 64 ^ (level - 1)
local timers_moved, chunks_read, chunks_per_read = 0, 0, 16
local open_chunks, open_sizes, finished_chunks = {}, {}, {}

local function close_chunk(child)
    local chunks = finished_chunks[child] or {}
    chunks[#chunks + 1] = table.concat(open_chunks[child])
    finished_chunks[child], open_chunks[child], open_sizes[child] = chunks, {}, 0
end

-- Adjacent timers of the same child are moved as one piece.
local function move_piece(child, piece, piece_count)
    local pieces = open_chunks[child]
    if not pieces then
        pieces = {}
        open_chunks[child], open_sizes[child] = pieces, 0
    end
    pieces[#pieces + 1] = piece
    open_sizes[child] = open_sizes[child] + piece_count
    if open_sizes[child] >= chunk_size then
        close_chunk(child)
    end
end

repeat
    local chunks = redis.call('LRANGE', slot, chunks_read, chunks_read + chunks_per_read - 1)
    for n = 1, #chunks do
        local chunk, at, piece_start, piece_count, child = chunks[n], 1, 1, 0, nil
        while at <= #chunk do
            local time, _, kind_and_length = read('>I6I4I2', chunk, at)
            local timer_child = (time - time % width) / width - first_child
            if timer_child < 0 or timer_child > 63 then
                return redis.error_reply('CORRUPT slot ' .. level .. ':' .. ARGV[3] .. ' holds a timer of another slot')
            end
            if timer_child ~= child or piece_count + (open_sizes[timer_child] or 0) >= chunk_size then
                if piece_count > 0 then
                    move_piece(child, sub(chunk, piece_start, at - 1), piece_count)
                end
                child, piece_start, piece_count = timer_child, at, 0
            end
            at, piece_count, timers_moved = at + 12 + kind_and_length % 16384, piece_count + 1, timers_moved + 1
        end
        if piece_count > 0 then
            move_piece(child, sub(chunk, piece_start), piece_count)
        end
        chunks_read = chunks_read + 1
        if timers_moved >= stop_after then
            break
        end
    end
until #chunks < chunks_per_read or timers_moved >= stop_after

for child, pieces in pairs(open_chunks) do
    if #pieces > 0 then
        close_chunk(child)
    end
end
local reply = { 0 }
for child, chunks in pairs(finished_chunks) do
    reply[#reply + 1] = child
    reply[#reply + 1] = redis.call('RPUSH', children[child + 1], unpack(chunks))
    local number = first_child + child
    redis.call('ZADD', slots, 'NX', number * width, string.format('%d:%.0f', level - 1, number))
end
if chunks_read > 0 then
    redis.call('LTRIM', slot, chunks_read, -1)
end
reply[1] = redis.call('LLEN', slot)
if reply[1] == 0 then
    redis.call('ZREM', slots, level .. ':' .. ARGV[3])
end
return reply
