-- Announces the messages that a call ends (Completed, Cancelled or Errored) on the channel `ended` of the queue, for the
-- callers that wait for them (`redis/end_waits.py`). Needs: _constants.
local ended_names, ended_size = {}, 0

local function add_ended(field)
    ended_size = ended_size + 1
    ended_names[ended_size] = pack('>I2c0', #field, field)
end

-- Called after the changes are written.
local function announce_ended()
    if ended_size > 0 then
        call('SPUBLISH', ended, table.concat(ended_names))
    end
end
