-- Removes unused large payloads. Large payloads never pass through Lua, because Lua computes a hash of each string that
-- it receives, which takes long for large strings. Instead, a command before this script call, in the same transaction,
-- writes them to `bodies`, under the field of `messages` .. digest. If no message uses such a payload when the script
-- call ends or is rejected, `unstage` removes the payload.
-- Needs: _constants, _record; ARGV as in enqueue.
local function unstage()
    for n = 1, #ARGV[3] / 8 do
        if band(byte(ARGV[3], n * 8 - 7), BODY) ~= 0 then
            local field = ARGV[n * 2 + 2]
            local body = field .. sub(ARGV[n * 2 + 3], 1, 8)
            local record = call('HGET', messages, field)
            local flags = record and byte(record, 2) or 0
            if band(flags, BODY) == 0 or body_field(field, record, fixed_at(record, flags)) ~= body then
                call('HDEL', bodies, body)
            end
        end
    end
end
refuse = function(text)
    unstage()
    return redis.error_reply(text)
end
