-- Constants that scripts share. BIAS, the states and the flags of records equal those in
-- `scheduler/tickwheel/storage/record.py`.
local pack, read, sub, byte, band, call = struct.pack, struct.unpack, string.sub, string.byte, bit.band, redis.call
local BIAS = 4503599627370496
local INVISIBLE, PENDING, RUNNING, COMPLETED, CANCELLED, ERRORED = 1, 2, 3, 4, 5, 6
local EXPLICIT, OWNED, OVERRIDES, ERROR, PAIRS, BODY, BORN_PENDING, HELD = 1, 2, 4, 8, 16, 32, 64, 128
-- Each of these flags stands for an optional section of the record. Most records have none of these sections, so scripts
-- test for all of them first, with one call of `band`.
local ANY_SECTION = EXPLICIT + OVERRIDES + ERROR + PAIRS + BODY
local refuse = redis.error_reply
-- Bits of `options`: EXCLUSIVE and FORECAST describe the queue; BLOCKED and HEADS apply to one call.
local EXCLUSIVE, FORECAST, BLOCKED, HEADS = 1, 2, 4, 8
