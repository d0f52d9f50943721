-- Fetches records for the scripts that settle or change messages which a caller names. Defines fetch_readable_records.
-- Needs: _transition.

-- Returns the records of fields. In an exclusive queue, a damaged record counts as missing: if the call failed at this
-- record, the indexes that it has written for other messages would stay.
local function fetch_readable_records(fields)
    local records = fetch_records(fields)
    for n = 1, exclusive and #fields or 0 do
        if records[n] and not pcall(parse_record, fields[n], records[n]) then
            records[n] = false
        end
    end
    return records
end
