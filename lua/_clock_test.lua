-- Reads a clock that a test sets: the field `now` of the shard's clock key. Never part of a production script.
local now = tonumber(redis.call('HGET', clock, 'now'))
