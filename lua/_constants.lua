-- The names that scripts go by; `scheduler/tickwheel/storage/record.py` is the twin of the first lines.
local pack, read, sub, byte, band, call = struct.pack, struct.unpack, string.sub, string.byte, bit.band, redis.call
local BIAS = 4503599627370496
local INVISIBLE, PENDING, RUNNING, COMPLETED, CANCELLED, ERRORED = 1, 2, 3, 4, 5, 6
local EXPLICIT, OWNED, OVERRIDES, ERROR, PAIRS, BODY, BORN_PENDING, HELD = 1, 2, 4, 8, 16, 32, 64, 128
-- Most messages have none of these: asked for together, a call of `band` is saved for each.
local ANY_SECTION = EXPLICIT + OVERRIDES + ERROR + PAIRS + BODY
local refuse = redis.error_reply
-- Options of a queue, and of a call on it.
local EXCLUSIVE, FORECAST, BLOCKED, HEADS = 1, 2, 4, 8
