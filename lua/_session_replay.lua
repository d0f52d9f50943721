-- Replays the stored answer of a retried call, for scripts that change messages in a session.
-- Defines: results, given (reads the messages named in ARGV), answer (ends the call). Needs: _session, _transition.
if replayed then
    return replayed
end
local results = {}
-- Returns the fields in ARGV from `first` on, without the `before` bytes that precede each field, and their records.
local function given(first, before)
    local fields = {}
    for n = first, #ARGV do
        fields[n - first + 1] = sub(ARGV[n], before + 1)
    end
    return fields, fetch(fields)
end
local function answer()
    local all = table.concat(results)
    remember(all)
    commit('')
    return all
end
