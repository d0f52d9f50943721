-- Ends a dequeue early if no message is deliverable, because most dequeue calls find no message. Some calls need the
-- rest of the script in any case, and do not end here: a call that may be a retry, a call that must store even an empty
-- answer (_session), a call that continues the search of an earlier call (_filter_walk), and a call that asks for the
-- next deadline (HEADS).
-- Needs: _constants, _queue_context.
-- Reads the options of the session from ARGV[2], before _session reads the whole argument.
if band(byte(ARGV[2], 13), 5) == 0 and not ARGV[5] and band(options, HEADS) == 0 then
    -- If `ready` is empty, no message is deliverable, with or without a filter.
    if call('EXISTS', ready) == 0 then
        return refusal_of_caller() or false
    end
    if ARGV[4] then
        local pair = sub(ARGV[4], 9, 10 + read('>I2', ARGV[4], 9))
        local entries = call('ZRANGEBYLEX', pairs, '[' .. pair, '(' .. pair .. '\255', 'LIMIT', 0, 1)
        if #entries == 0 then
            return refusal_of_caller() or entries
        end
    end
end
