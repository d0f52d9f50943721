"""The event process: runs the drivers of all shards for which it is elected leader.

Each shard has a loop in a thread of its own. The loop waits for the election, drives the shard while it leads, and
reconnects with a back-off after errors. Two sidecars, the relay and the forwarder of messages to sinks, run next to the
wheel in their own threads, and their failures do not stop the wheel. The wheel itself is in `driver`, the elections in
`election`, the relay in `relay` and the sinks in `sinks`.

supervisor.py        the event process: start and stop of the loops of its shards
shard_loop.py        the loop of one shard: election, then driver
reachability.py      when a leader counts its shard as unreachable
lease_election.py    election by lease, in one thread
lease_connection.py  the connections of an election by lease
sidecar.py           a task next to the wheel, restarted after errors
queue_directory.py   the queues of a namespace, read from the metadata shard
known_queues.py      the queues as the process last read them: a read decodes only changed rows
namespace_watch.py   the check that the namespace still exists
loop_waits.py        when the loop of a shard waits, for the election and for the health check
watched_queues.py    the same queues for a driver: a read of the metadata shard counts as waiting
assembly.py          an event process from its options
queue_readings.py    the metrics of queues on one shard, as a script returns them
shard_readings.py    the latest readings of a shard's queues, and the turns in which they are read
queue_metrics_reader.py  reads the metrics of queues for the shards that the process leads
metrics.py           the metrics of an event process
queue_metrics.py     the metrics of queues
last_resort.py       an event process that drives only while nothing speaks against it
obstacle_watch.py    stops an event process of last resort when something speaks against it
child_metrics.py     the metrics of such a process, for the program that started it
parent_input.py      the pipe from the program that started the event process
driving_log.py       the log of when a process of last resort drives
main.py              the program: its options and its signals
__main__.py          the program `python -m tickwheel.event_process`
"""

from tickwheel.driver.queue_lookup import QueueLookup as Queues, QueueRef
from tickwheel.driver.stats import WheelStats
from tickwheel.election.election import Election, Leadership
from tickwheel.election.lock_file import LockFileElection
from tickwheel.event_process.supervisor import EventProcess

__all__ = [
    "Election",
    "EventProcess",
    "Leadership",
    "LockFileElection",
    "QueueRef",
    "Queues",
    "WheelStats",
]
