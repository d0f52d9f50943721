"""Leader election: decides which event process drives each shard.

There are three kinds: lock files, for event processes on one host; and for many hosts, ZooKeeper, or leases in Redis.
An election promises that a shard usually has exactly one leader, and that another process takes over when the leader
ends. An election cannot prevent a leader that was paused from sending commands later; the fence in Redis rejects such
commands. Driving a shard is left to `event_process`.

election.py           the protocols that all kinds implement
claims.py             how the holder of a leadership claims its shard, without I/O
lock_file.py          election by lock files
lock_folder.py        the folder of this user's lock files
zookeeper.py          election by ZooKeeper, in one thread
lease_options.py      the options of an election by lease
lease_row.py          the row in which a member of an election by lease describes itself
lease_attendance.py   the call of a member, and its reply
lease_member.py       what a member sees and decides, without I/O
answer_times.py       how soon a member answers what all members hear
unclaimed_shards.py   when a member of the last resort may claim shards that nobody has claimed
lease_shards.py       the shards of a member, shared by its loops and the election's thread
lease_steps.py        the commands of the election's thread, without I/O
loop_watch.py         finds the loops that hang
stored_assignment.py  the assignment that an election by lease stores
candidacy.py          the next step of a member for one shard, without I/O
assignment.py         the distribution of shards over members, without I/O
membership.py         the list of members, and the stored assignment
shard_state.py        the state of one shard in a ZooKeeper election
znodes.py             the permanent nodes of an election
zookeeper_session.py  a session with ZooKeeper in which every request has a deadline
zookeeper_url.py      the URL of a ZooKeeper election
problem_log.py        the log of problems with ZooKeeper, one line for each problem
"""
