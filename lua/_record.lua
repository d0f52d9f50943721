-- Describes and reads a message's record. `scheduler/tickwheel/storage/record.py` has the same layout, and a test
-- compares the two byte for byte. A section in capitals is present only if the record has the flag of this name.
--   head       state B, flags B, version I4, attempts I2, until I6; the part that each transition changes
--   OWNED      token c16, worker Bc0
--   fixed      incarnation I6, due I6, digest of the message's content c8, nonce I4; by digest and nonce, enqueue.lua
--              recognises a retry
--   EXPLICIT   deadline I8 (+ 2^52); without it the deadline is `due`
--   OVERRIDES  lease_ms I4, max_attempts I2; zero: the value of the queue
--   ERROR      text I2c0: the error, or the result of a Completed message
--   PAIRS      signature c8, number of indexed pairs B, then one I2c0 that contains all pairs, first the indexed ones;
--              each pair is an I2c0, too, with the key as Bc0 and then the value
--   the rest   the payload; with BODY, the payload is in `bodies` instead, under the field of `messages` .. digest
-- `until` is the time of the message's timer: the end of invisibility, lease or retention.
-- UNLEASED is the format of a record without OWNED, from the head to `due`. LEASED is the format of a record with
-- OWNED, from the head to the incarnation.
-- AFTER_HEAD is the position after the head: of OWNED, or of the fixed part if the record has no OWNED.
local HEAD, UNLEASED, LEASED, AFTER_HEAD = '>BBI4I2I6', '>BBI4I2I6I6I6', '>BBI4I2I6c16Bc0I6', 15

-- Returns the position of the fixed part.
local function fixed_at(record, flags)
    return band(flags, OWNED) ~= 0 and 32 + byte(record, 31) or AFTER_HEAD
end

-- Returns the field of the payload in `bodies`; `at` is the position of the fixed part.
local function body_field(field, record, at)
    return field .. sub(record, at + 12, at + 19)
end

-- Returns deadline, rank, and the position of OVERRIDES; `at` is the position of the fixed part. The rank orders
-- messages of one deadline: first the messages with an explicit deadline, then all others. In both groups, the message
-- that was enqueued earlier comes first.
local IMPLICIT_DEADLINE_RANK = 140737488355328
local function read_order(record, flags, at, incarnation, due)
    if band(flags, EXPLICIT) ~= 0 then
        return read('>I8', record, at + 24) - BIAS, incarnation, at + 32
    end
    return due, incarnation + IMPLICIT_DEADLINE_RANK, at + 24
end

-- Returns signature, number of indexed pairs, and pairs; `at` is the position of OVERRIDES, whether present or not.
local function read_pairs(record, flags, at)
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

-- Returns deadline, rank, signature, number of indexed pairs, pairs, and the position of OVERRIDES.
local function read_sections(record, flags, at, incarnation, due)
    if band(flags, ANY_SECTION) == 0 then
        return due, incarnation + IMPLICIT_DEADLINE_RANK, '', 0, '', at + 24
    end
    local deadline, rank, next_at = read_order(record, flags, at, incarnation, due)
    local signature, pair_count, packed_pairs = read_pairs(record, flags, next_at)
    return deadline, rank, signature, pair_count, packed_pairs, next_at
end

-- Calls action(pair) for each indexed pair. The pair includes its length (I2c0), as in the record. If a damaged record
-- has fewer pairs than it should, this function ends, because callers have already written indexes.
local function for_each_pair(pair_count, packed_pairs, action)
    local at, last = 1, #packed_pairs - 1
    for _ = 1, pair_count do
        if at > last then
            return
        end
        local next_at = at + 2 + read('>I2', packed_pairs, at)
        action(sub(packed_pairs, at, next_at - 1))
        at = next_at
    end
end
