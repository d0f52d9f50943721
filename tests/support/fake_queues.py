"""Queues on the shards of a server that does not exist. They answer the plans that read the metrics of queues."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tickwheel.event_process.queue_readings import LATE_BUCKETS
from tickwheel.model.queue_config import QueueConfig
from tickwheel.plan import Plan, Reply, Request, Round
from tickwheel.storage.fence import pack_fence


@dataclass
class FakeQueue:
    """The stored metrics of one queue on one shard. ``since_ms`` is None if no message is ready."""

    counts: list[int | None] = field(default_factory=lambda: [None] * 6)
    errored: int = 0
    late: dict[int, int] = field(default_factory=dict)
    since_ms: int | None = None


class FakeQueues:
    """The queues of each shard, by name. ``commands`` has the number of commands of each call."""

    def __init__(self, names: Iterable[str], shards: int = 1) -> None:
        self.names = list(names)
        self.shards = [{name: FakeQueue() for name in self.names} for _ in range(shards)]
        self.epochs = dict.fromkeys(range(shards), 1)
        self.now_ms = 10_000
        self.commands: list[int] = []
        self.calls_of: list[int] = []
        self.error: Exception | None = None

    def run(self, plan: Plan[Any]) -> Any:
        """Run a plan of the reader."""
        answer: Any = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                return end.value
            answer = [Reply(self._answer(request)) for request in step.requests] if isinstance(step, Round) else None

    def _answer(self, request: Request) -> list[Any]:
        if request.call is None:
            self.commands.append(1)
            return [part for number, name in enumerate(self.names, 1) for part in (name.encode(), _stored(number))]
        if self.error is not None:
            raise self.error
        self.calls_of.append(request.shard)
        commands, answers = 3, []
        queues = [str(key).split(":q:")[1].rpartition(":")[0] for key in request.call.keys[2::4]]
        for name, known in zip(queues, request.call.args, strict=True):
            queue = self.shards[request.shard][name]
            text = b",".join(b"" if count is None else b"%d" % count for count in queue.counts)
            commands += 1 + (2 if text != known else 0) + (2 if queue.counts[1] else 0)
            late = b",".join(b"%d" % queue.late[n] if n in queue.late else b"" for n in range(LATE_BUCKETS))
            since = b"" if queue.since_ms is None else queue.since_ms.to_bytes(6, "big")
            answers.append([text, b"%d" % queue.errored, late, since] if text != known else [text, b"", b"", since])
        self.commands.append(commands)
        return [self.now_ms.to_bytes(6, "big"), pack_fence(self.epochs[request.shard], 1), commands, *answers]


def _stored(number: int) -> bytes:
    """Return a configuration as the metadata shard stores it."""
    return (1).to_bytes(4, "big") + b"uid " + number.to_bytes(2, "big") + QueueConfig().to_bytes()
