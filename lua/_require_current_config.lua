-- Rejects a call with a stale configuration, or on a blocked queue. Needs: _queue_context.
do
    local refusal = refusal_of_caller()
    if refusal then
        return refusal
    end
end
