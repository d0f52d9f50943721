-- A message's record as bytes; `scheduler/tickwheel/record.py` is its twin and a test compares the two byte for byte.
--   header     state B, flags B, version I4, attempts I2, incarnation I6, due I6, until I6, digest c8, nonce I4
--   EXPLICIT   deadline I8 (+ 2^52); without it the deadline is `due`
--   OWNED      token c16, worker Bc0
--   OVERRIDES  lease_ms I4, max_attempts I2; zero is the queue's
--   ERROR      text I2c0
--   PAIRS      signature c8, how many are indexed B, pairs I2c0: each I2c0 of (key Bc0, value)
--   the rest   the payload, unless BODY: then it is in `bodies`
-- `until` is when the message's timer is due: Invisible until then, leased until then, kept until then.
local pack, read, sub, byte, band = struct.pack, struct.unpack, string.sub, string.byte, bit.band
local HEADER, SECTIONS, BIAS = '>BBI4I2I6I6I6c8I4', 39, 4503599627370496
local INVISIBLE, PENDING, RUNNING, COMPLETED, CANCELLED, ERRORED = 1, 2, 3, 4, 5, 6
local EXPLICIT, OWNED, OVERRIDES, ERROR, PAIRS, BODY, BORN_PENDING, HELD = 1, 2, 4, 8, 16, 32, 64, 128

-- Where the section after OWNED starts; the deadline on the way.
local function urgency(record, flags, due)
    local deadline, at = due, SECTIONS
    if band(flags, EXPLICIT) ~= 0 then
        deadline, at = read('>I8', record, SECTIONS) - BIAS, SECTIONS + 8
    end
    return deadline, at
end

-- Order within a deadline: explicit deadlines first, then by first enqueue.
local function rank_of(flags, incarnation)
    return band(flags, EXPLICIT) ~= 0 and incarnation or incarnation + 140737488355328
end

-- Signature, number of indexed pairs, and pairs of a record without OWNED whose further sections start `at`.
local function pairs_of(record, flags, at)
    if band(flags, PAIRS) == 0 then
        return '', 0, ''
    end
    if band(flags, OVERRIDES) ~= 0 then
        at = at + 6
    end
    if band(flags, ERROR) ~= 0 then
        at = at + 2 + read('>I2', record, at)
    end
    return read('>c8BI2c0', record, at)
end

-- Calls action(pair) for each indexed pair, with its length before it (I2c0), as in the record.
local function each_pair(indexed, blob, action)
    local at = 1
    for _ = 1, indexed do
        local after = at + 2 + read('>I2', blob, at)
        action(sub(blob, at, after - 1))
        at = after
    end
end
