"""The driver: runs the timing wheel of one shard for the event process that leads the shard.

`ShardDriver` is a generator. It yields commands for the shard's server and is sent the replies, so production, tests
and the simulator run the same code. The driver files new timers into slots, cascades the slots, loads timers that are
due soon into memory, and fires due timers. The driver takes the time from the clock guard, so a wrong server clock does
not promote messages early. A timer stays in Redis until a script has checked its message, or until the timer is known
to be stale. So a crash loses no timer. Electing the leader and restarting a driver after a failure are left to the
caller. Only `shard_connection.py` and `stream_tail.py` do I/O.

shard_driver.py      the driver of one shard, which claims the shard, and files, cascades and fires timers
firing.py            calls of the scripts that promote, expire and retire, for due timers
inbox_buffer.py      timers read from the inbox and not yet filed
filing.py            the arguments of one call that files timers into slots
corrupt_entries.py   entries and values that no program of Tickwheel writes, which are logged and counted
slots.py             the leader's copy of the slots in use, and the choice of the next slot to serve
loaded_timers.py     all timers in memory, and the number of open timers of each slot
near_timers.py       the timers of one kind in memory, by tick
finished_leases.py   leases that are known to be over, whose timers need no call
batch_size.py        the number of elements to read at once, if their size is unknown in advance
clock.py             the interface of the clock that a driver needs
server_clock.py      the clock in production: the server's clock, as far as the clock guard trusts it
clock_guard.py       the guard against steps forward of the server's clock
fenced_shard.py      keys and scripts of one shard, and calls that contain the fence
queue_lookup.py      the interface through which a driver finds the queue with a given number
unknown_queues.py    numbers that no queue has, and the limit of reads of the metadata shard for these numbers
commands.py          the commands that a driver yields
run_steps.py         execution of the commands of a generator
shard_connection.py  execution of commands on the shard's server
stream_tail.py       the reader that follows a stream, with blocking reads
config.py            settings that all drivers of one shard share
stats.py             counters and state of one shard's wheel
"""
