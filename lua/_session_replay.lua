-- Replays the stored answer of a retried call, for scripts that change messages in a session.
-- Defines: results, fetch_arguments (reads the messages named in ARGV), finish_call.
-- Needs: _session, _transition, _readable_records.
if stored_answer then
    return stored_answer
end
local results = {}
-- Returns two lists: the fields of messages in ARGV from index `first` on, and their records. In ARGV, each field comes
-- after a prefix of `prefix_size` bytes.
local function fetch_arguments(first, prefix_size)
    local fields = {}
    for n = first, #ARGV do
        fields[n - first + 1] = sub(ARGV[n], prefix_size + 1)
    end
    return fields, fetch_readable_records(fields)
end
local function finish_call()
    local packed_results = table.concat(results)
    local failure = commit('')
    if failure then
        return failure
    end
    store_answer(packed_results)
    return packed_results
end
