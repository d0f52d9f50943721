-- Reads the messages of a queue page by page. Defines scan_page.
-- A cursor of HSCAN is a position in a hash table, and each process of a server orders the table differently. So the
-- cursor would skip messages after a restart of the server, a failover, or the migration of the slot. A cursor of
-- scan_page is that of HSCAN behind the first 8 digits of the server's `run_id`. Any other cursor starts at the first
-- page: a cursor of another process, or of an earlier version of Tickwheel, which has no `run_id`.

-- Returns names and records alternately, the cursor of the next page (empty if there is none), and that of this page.
local function scan_page(number, cursor, page_size)
    local run_id = string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), 1, 8)
    local run_id_of_cursor, position = string.match(cursor, '^(%x+)-(%d+)$')
    if run_id_of_cursor ~= run_id then
        position = '0'
    end
    -- A backslash takes the special meaning from a byte of the pattern.
    local pattern = '\\' .. string.sub(number, 1, 1) .. '\\' .. string.sub(number, 2, 2) .. '*'
    local page = redis.call('HSCAN', messages, position, 'MATCH', pattern, 'COUNT', page_size)
    return page[2], page[1] ~= '0' and run_id .. '-' .. page[1] or '', run_id .. '-' .. position
end
