"""Leader election: decides which event process drives each shard.

There are two kinds: a lock file, for event processes on one host, and ZooKeeper, for many hosts. An election promises
that a shard usually has exactly one leader, and that another process takes over when the leader ends. An election
cannot prevent a leader that was paused from sending commands later; the fence in Redis rejects such commands. Driving a
shard is left to `event_process`.

election.py           the protocols that both kinds implement
lock_file.py          election by lock files
lock_folder.py        the folder of this user's lock files
zookeeper.py          election by ZooKeeper, in one thread
candidacy.py          the next step of a member for one shard, without I/O
assignment.py         the distribution of shards over members, without I/O
membership.py         the list of members, and the stored assignment
shard_state.py        the state of one shard in a ZooKeeper election
znodes.py             the permanent nodes of an election
zookeeper_session.py  a session with ZooKeeper in which every request has a deadline
zookeeper_url.py      the URL of a ZooKeeper election
problem_log.py        the log of problems with ZooKeeper, one line for each problem
"""
