"""The driver: runs the timing wheel of one shard for the event process that leads the shard.

`ShardDriver` is a generator. It yields commands for the shard's server and is sent the replies, so production, tests
and the simulator run the same code. The driver files new timers into slots, cascades the slots, loads timers that are
due soon into memory, and fires due timers. The driver takes the time from the clock guard, so a wrong server clock does
not promote messages early. A timer is dropped from Redis only after a script has answered it, so a crash loses none.
Electing the leader and restarting a driver after a failure are left to the caller. Only `shard_connection.py` and
`stream_tail.py` do I/O.

shard_driver.py      the driver of one shard: claim, take over, then all duties in turn
firing.py            sends due timers to the scripts that promote, expire and retire
inbox_buffer.py      timers read from the inbox and not yet filed
filing.py            the arguments of one call that files timers into slots
slots.py             the leader's copy of the slots in use, and which to serve next
loaded_timers.py     all timers in memory, and the open timers of each slot
near_timers.py       the timers of one kind in memory, by tick
finished_leases.py   leases that are known to be over: their timers need no call
batch_size.py        how many elements to read, if their size is unknown in advance
clock.py             the clock that a driver needs, as a protocol
server_clock.py      the clock in production: the server's clock, as far as the clock guard trusts it
clock_guard.py       holds the time if the server's clock steps forward
fenced_shard.py      keys and scripts of one shard, and calls under a fence
queue_lookup.py      the queue of a number, as a protocol
commands.py          the commands that a driver yields
run_steps.py         executes the commands of a generator
shard_connection.py  executes commands on the shard's server
stream_tail.py       follows a stream by blocking reads
config.py            settings that all drivers of one shard share
stats.py             counters and state of one shard's wheel
"""
