-- Rejects a call that would add events if the outbox is at its limit. Needs: _transition.
if history >= RELAYED then
    local refusal = refusal_of_outbox(outbox_size(call('HGET', clock, 'outbox')))
    if refusal then
        return refusal
    end
end
