-- Ends an ordinary dequeue that can find nothing before anything else is set up: it is the call made most often.
-- A call that may have been answered before is not ordinary. Needs: _constants, _queue_context; reads ARGV[2] (_session).
if band(byte(ARGV[2], 13), 5) == 0 and not ARGV[5] and band(options, HEADS) == 0 then
    -- With no head ready, nothing is deliverable, under no filter either.
    if call('EXISTS', ready) == 0 then
        return refusal_of_caller() or false
    end
    if ARGV[4] then
        local pair = sub(ARGV[4], 9, 10 + read('>I2', ARGV[4], 9))
        local first = call('ZRANGEBYLEX', pairs, '[' .. pair, '(' .. pair .. '\255', 'LIMIT', 0, 1)
        if #first == 0 then
            return refusal_of_caller() or first
        end
    end
end
