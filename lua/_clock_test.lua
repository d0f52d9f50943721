-- A clock that a test turns: the field `now` of the shard's clock key. Never part of a production script.
local now = tonumber(redis.call('HGET', clock, 'now'))
