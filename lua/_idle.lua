-- Ends an ordinary dequeue that can find nothing before anything else is set up: it is the call made most often.
-- Needs: _words, _context, _session.
if not replayed and not keeps_empty and ARGV[4] == '' and band(options, HEADS) == 0 then
    local nothing
    if ARGV[5] == '' then
        nothing = call('EXISTS', ready) == 0
    else
        local pair = sub(ARGV[5], 9, 10 + read('>I2', ARGV[5], 9))
        nothing = #call('ZRANGEBYLEX', pairs, '[' .. pair, '(' .. pair .. '\255', 'LIMIT', 0, 1) == 0
    end
    if nothing then
        return false
    end
end
