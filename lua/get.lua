#!lua flags=no-writes
-- Reads one message.
-- KEYS: clock config messages bodies
-- INCLUDE: _constants _record _clock _queue_context _require_current_config
-- ARGV[1]  context (_queue_context)
-- ARGV[2]  name of the message: its field in `messages` without the queue's number
-- ARGV[3]  when to read a payload in `bodies`: `always`, `ended` (only if the message has ended) or `never`
-- Reply    {now I6, record, payload from `bodies` or empty}; an empty record if there is no such message
-- Errors   STALECONFIG
-- Cost     O(1)
local field, when, body = queue_number .. ARGV[2], ARGV[3], ''
local record = call('HGET', messages, field) or ''
local state, flags = byte(record, 1, 2)
if band(flags or 0, BODY) ~= 0 and (when == 'always' or when == 'ended' and state >= COMPLETED) then
    body = call('HGET', bodies, body_field(field, record, fixed_at(record, flags)))
end
return { pack('>I6', now), record, body }
