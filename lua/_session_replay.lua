-- What the calls share that change messages under a session: one that is sent again gets its first answer.
-- Gives: results, given (the messages named in ARGV), answer (ends the call). Needs: _session, _transition.
if replayed then
    return replayed
end
local results = {}
-- The fields in ARGV from `first` on, each behind so many bytes of its own, and their records.
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
