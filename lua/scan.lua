#!lua flags=no-writes
-- Returns a page of the shard's messages of one queue, in no particular order.
-- KEYS: messages
-- INCLUDE: _scan_cursor
-- ARGV[1]  queue number I2
-- ARGV[2]  cursor of the page: 0, or the cursor of the previous reply (_scan_cursor)
-- ARGV[3]  messages of the page; a page may have fewer, or a few more
-- Reply    {names and records alternately, cursor of the next call; empty if there is no further page}
-- Cost     O(messages of the page)
local names_and_records, next_cursor = scan_page(ARGV[1], ARGV[2], ARGV[3])
return { names_and_records, next_cursor }
