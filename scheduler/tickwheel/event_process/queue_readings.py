"""The metrics of queues on one shard, as the script `queue_metrics` returns them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from struct import Struct

from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import read_configs
from tickwheel.plan import Plan, Request, send_request
from tickwheel.storage.fence import StoredClaim
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.storage.record import State
from tickwheel.storage.scripts import bind, load

# The keys of a queue that the script reads, in this order.
_QUEUE_KEYS = ("config", "counts", "lateness", "ready")
# The buckets of the stored histogram of lateness. Bucket n counts the values below 2**n ms that no lower bucket counts.
LATE_BUCKETS = 49
# The maximum number of commands of a call: the call itself, two for the shard, and five for each queue.
_SHARD_COMMANDS, _QUEUE_COMMANDS = 3, 5
_TIME = Struct(">HI")


@dataclass(frozen=True, slots=True)
class QueueReading:
    """The metrics of one queue on one shard, at the moment of a call.

    counts       number of messages in each state, in the order of `State`
    errored      number of messages that have become Errored since the queue was created
    late         histogram of the lateness of promotion: the counts of LATE_BUCKETS buckets
    head_age_ms  for how long the most urgent ready message has been deliverable; 0 if no message is ready
    counts_text  the counts as the script has returned them; the script compares them in a later call
    """

    counts: tuple[int, ...] = (0,) * len(State)
    errored: int = 0
    late: tuple[int, ...] = (0,) * LATE_BUCKETS
    head_age_ms: int = 0
    counts_text: bytes = b""

    @property
    def is_used(self) -> bool:
        """Whether the queue has ever had a message on the shard."""
        return bool(self.counts_text.strip(b","))


# Most readings of a namespace with many queues equal this one, so they share the object.
_UNUSED = QueueReading(counts_text=b"," * (len(State) - 1))


@dataclass(frozen=True, slots=True)
class ShardReply:
    """The answer of a call: the shard's epoch, the number of commands that the server executed, and the readings."""

    epoch: int
    commands: int
    readings: dict[str, QueueReading]


def max_commands(queues: int) -> int:
    """Return how many commands the server executes at most in a call for this number of queues."""
    return _SHARD_COMMANDS + _QUEUE_COMMANDS * queues


def read_queues(context: NamespaceContext, shard: int, queues: Mapping[str, QueueReading | None]) -> Plan[ShardReply]:
    """Read the metrics of some queues on a shard, with one call.

    ``queues`` maps each queue to its previous reading. If the counts of the queue have not changed since then, the
    server does not read the counters of errored and late messages again. Without a previous reading, it reads all.
    """
    script = load("queue_metrics", context.clock)
    own_keys = {name: shard_key(context.namespace, shard, name) for name in script.keys}
    keys = [queue_key(context.namespace, shard, queue, key) for queue in queues for key in _QUEUE_KEYS]
    texts = [b"" if previous is None else previous.counts_text for previous in queues.values()]
    reply = yield from send_request(Request(shard, bind(script, own_keys, texts, keys)))
    if reply.error is not None:
        raise reply.error.to_tickwheel_error(f"shard {shard}") from reply.error
    now, fence, commands, *answers = reply.value
    readings = {
        queue: _parse(answer, _parse_time(now), previous)
        for (queue, previous), answer in zip(queues.items(), answers, strict=True)
    }
    return ShardReply(StoredClaim(fence).epoch, int(commands), readings)


def read_queue_names(context: NamespaceContext) -> Plan[list[str]]:
    """Return the names of the namespace's queues, in the order in which the queues were created."""
    configs = yield from read_configs(context)
    numbers = {config.number: name for name, config in configs.items() if not config.deleted}
    return [numbers[number] for number in sorted(numbers)]


def _parse(answer: list[bytes], now: int, previous: QueueReading | None) -> QueueReading:
    counts_text, errored, late, since = answer
    head_age_ms = max(0, now - _parse_time(since)) if since else 0
    if previous is not None and counts_text == previous.counts_text:
        return replace(previous, head_age_ms=head_age_ms)
    reading = QueueReading(
        _numbers(counts_text, len(State)), _number(errored), _numbers(late, LATE_BUCKETS), head_age_ms, counts_text
    )
    return _UNUSED if reading == _UNUSED else reading


def _numbers(text: bytes, size: int) -> tuple[int, ...]:
    values = text.split(b",")
    # If the key is damaged, the script returns no values.
    return tuple(map(_number, values)) if len(values) == size else (0,) * size


def _number(text: bytes) -> int:
    """Return a counter. A value that no script stores counts as 0."""
    return int(text) if text.isdigit() and len(text) < 16 else 0


def _parse_time(packed: bytes) -> int:
    high, low = _TIME.unpack(packed)
    return int(high << 32 | low)
