-- Large payloads never pass through Lua, which would hash them whole: they come in the same transaction, before the call,
-- and wait in `bodies` under field .. digest. Those that no message has when the call ends, or is refused, go again.
-- Needs: _words, _record; ARGV as in enqueue.
local function unstage()
    for n = 3, #ARGV, 2 do
        local head = ARGV[n]
        if band(byte(head), BODY) ~= 0 then
            local field, digest = read('>I2c0', head, 25), sub(head, 17, 24)
            local record = call('HGET', messages, field)
            local flags = record and byte(record, 2) or 0
            if band(flags, BODY) == 0 or body_of(field, record, fixed_at(record, flags)) ~= field .. digest then
                call('HDEL', bodies, field .. digest)
            end
        end
    end
end
refuse = function(text)
    unstage()
    return redis.error_reply(text)
end
