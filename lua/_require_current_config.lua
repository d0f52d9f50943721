-- Rejects a call with a stale configuration, or on a blocked queue. Needs: _queue_context.
do
    local refused = refusal_of_caller()
    if refused then
        return refused
    end
end
