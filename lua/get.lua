#!lua flags=no-writes
-- Reads one message.
-- KEYS: clock config messages bodies
-- INCLUDE: _clock _record _context
-- ARGV[1]  context (_context)
-- ARGV[2]  name
-- Reply    {now I6, record, body}; an empty record where there is none
-- Errors   STALECONFIG
-- Cost     O(1)
local record, body = redis.call('HGET', messages, queue_number .. ARGV[2]) or '', ''
if record ~= '' then
    local _, flags = read(HEADER, record)
    if band(flags, BODY) ~= 0 then
        body = redis.call('HGET', bodies, queue_number .. ARGV[2])
    end
end
return { pack('>I6', now), record, body }
