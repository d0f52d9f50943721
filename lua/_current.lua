-- Refuses a caller of another configuration, and of a blocked queue. Needs: _context.
if is_stale() then
    return refuse(STALECONFIG)
elseif is_blocked then
    return refuse(QUEUE_BLOCKED)
end
