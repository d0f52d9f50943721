-- Reads the shard's last claim. Defines `election`, `fence`, `trusted` and `accepted_lead`, each nil if it is not stored,
-- `corrupt`, and `store_claim`, which stores the new claim and returns the reply. Reads ARGV[1] to ARGV[6], which
-- `claim_shard.lua` describes; an empty ARGV[5] is like a missing one.
-- Needs: _clock.
local stored = redis.call('HMGET', clock, 'fence', 'election', 'high', 'accepted', 'created')
local corrupt = {}

-- Returns the value of a field if it is valid. Otherwise, records a stored value as corrupt, and returns nil.
local function accept_valid(field, value, is_valid)
    if value and is_valid(value) then
        return value
    elseif value then
        corrupt[#corrupt + 1] = field
        corrupt[#corrupt + 1] = string.sub(value, 1, 32)
    end
end

-- A kind of election is a lower-case word.
local function is_election(value)
    return value == ARGV[2] or #value <= 32 and string.find(value, '^[a-z]+$')
end

local function is_fence(value)
    if #value ~= 16 then
        return false
    end
    local epoch, number = struct.unpack('>I8I8', value)
    return epoch < 9007199254740992 and number < 9007199254740992
end

-- Times are below 2^48, and have at most 15 digits.
local function is_time(value)
    return #value <= 16 and string.find(value, '^%-?%d+$')
end

local election = accept_valid('election', stored[2], is_election)
local fence = accept_valid('fence', stored[1], is_fence)
local trusted = accept_valid('high', stored[3], is_time)
local accepted_lead = accept_valid('accepted', stored[4], is_time)
if not trusted then
    trusted = accept_valid('created', stored[5], is_time)
end

local function store_claim()
    for n = 1, #corrupt, 2 do
        redis.call('HDEL', clock, corrupt[n])
    end
    redis.call('HSET', clock, 'fence', ARGV[1], 'election', ARGV[2], 'owner', ARGV[4])
    if ARGV[5] and ARGV[5] ~= '' then
        redis.call('HSET', clock, 'high', ARGV[5])
        if ARGV[6] == '0' then
            redis.call('HDEL', clock, 'held')
        else
            redis.call('HSET', clock, 'held', ARGV[6] .. ARGV[1])
        end
    end
    if ARGV[3] == '0' then
        accepted_lead = nil
        redis.call('HDEL', clock, 'accepted')
    elseif ARGV[3] ~= '' then
        accepted_lead = ARGV[3]
        redis.call('HSET', clock, 'accepted', accepted_lead)
    end
    return { now, trusted or '', accepted_lead or '', unpack(corrupt) }
end
