#!lua flags=no-writes
-- Reads one message.
-- KEYS: clock config messages bodies
-- INCLUDE: _words _clock _context
-- ARGV[1]  context (_context)
-- ARGV[2]  name
-- Reply    {now I6, record, body}; an empty record where there is none
-- Errors   STALECONFIG
-- Cost     O(1)
local record, body = call('HGET', messages, queue_number .. ARGV[2]) or '', ''
if record ~= '' and band(byte(record, 2), BODY) ~= 0 then
    body = call('HGET', bodies, queue_number .. ARGV[2])
end
return { pack('>I6', now), record, body }
