#!lua flags=no-writes
-- Reads one message.
-- KEYS: clock config messages bodies
-- INCLUDE: _constants _record _clock _queue_context _require_current_config
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  name of the message: its field in `messages` without the queue's number
-- Reply    {now I6, record, payload from `bodies` or empty}; an empty record if there is no such message
-- Errors   STALECONFIG
-- Cost     O(1)
local field, body = queue_number .. ARGV[2], ''
local record = call('HGET', messages, field) or ''
local flags = record ~= '' and byte(record, 2) or 0
if band(flags, BODY) ~= 0 then
    body = call('HGET', bodies, body_field(field, record, fixed_at(record, flags)))
end
return { pack('>I6', now), record, body }
