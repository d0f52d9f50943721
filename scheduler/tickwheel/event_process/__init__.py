"""The event process: the elected driver of the wheels, from new timers in the inbox to promoted messages.

levels, near, slots, inbox, memory    what the wheel is made of: plain data
driver, firing, filing, commands      the wheel of one shard, without I/O
guard, clock, server_clock            which time it is
election, lockfile                    who may drive; on many hosts:
assignment, candidacy, zookeeper_url  who is to, and what follows: without I/O
ensemble, roll, seat, zookeeper       the election on ZooKeeper
link, tail, shard_loop, supervisor    the running process
companion: relay, flight, broker      beside the wheel: the outbox to Kafka,
hand_off, handed, channels, sink*     and due messages to the sinks of their queues
"""

from tickwheel.driver.queue_lookup import QueueLookup as Queues
from tickwheel.driver.queue_lookup import QueueRef
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
