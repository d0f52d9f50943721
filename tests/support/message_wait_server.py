"""A server that answers the steps of a wait for the messages of several queues, and records them."""

from collections.abc import Callable
from typing import Any

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import AwaitWakeup, Plan, Reply, Round, SubscribeJointly, Unsubscribe

NAMES = ("red", "green", "blue")
# Version, uid and number of a queue precede its settings.
STORED_BEFORE = b"\0\0\0\1uniq\0\1"


class Waiter:
    """A waiter whose announcements the test sets."""

    def __init__(self) -> None:
        self.next: tuple[list[str], bool] = ([], False)
        self.searched: list[str] = []
        self.opened: list[str] = []
        # The closed queues that a sweep has chosen for the call.
        self.to_read: tuple[str, ...] = ()

    def announced(self) -> tuple[list[str], bool]:
        following, self.next = self.next, ([], False)
        return following

    def begin_search(self, queue: str) -> None:
        self.searched.append(queue)

    def closed_queues_to_read(self) -> tuple[str, ...]:
        return self.to_read

    def on_read(self, queues: tuple[str, ...]) -> None:
        if queues is self.to_read:
            self.to_read = ()

    def open(self, queues: list[str]) -> None:
        self.opened += queues

    def wake(self) -> None:
        pass


class Server:
    """Answers the steps of a wait, and records them."""

    def __init__(self, shards: int = 1) -> None:
        self.context = NamespaceContext("ns")
        self.context.shards = shards
        self.stored = {name: QueueConfig() for name in NAMES}
        self.ready: set[str] = set()
        self.shards = b"%d" % shards
        self.commands: list[tuple[Any, ...]] = []
        self.subscribed: list[list[str]] = []
        self.closed: list[str] = []
        self.waiter = Waiter()
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        # The number of rounds, and the number of requests of the largest one.
        self.rounds = self.largest_round = 0
        self.on_round: Callable[[], None] = lambda: None
        # The queues whose stored configuration is damaged.
        self.damaged: set[str] = set()

    def run(self, plan: Plan[Any]) -> Any:
        answer: Any = None
        try:
            while True:
                answer = self._answer(plan.send(answer))
        except StopIteration as ended:
            return ended.value

    def _answer(self, step: Any) -> Any:
        match step:
            case Round(requests):
                self.rounds += 1
                self.on_round()
                self.on_round = lambda: None
                self.largest_round = max(self.largest_round, len(requests))
                return [Reply(self._read(request.command)) for request in requests]
            case SubscribeJointly(queues, closed=closed):
                self.subscribed.append(list(queues))
                self.closed = list(closed)
                return self.waiter
            case AwaitWakeup(_, seconds):
                self.sleeps.append(seconds)
                self.on_sleep()
            case Unsubscribe():
                self.subscribed.append([])
        return None

    def _read(self, command: tuple[Any, ...] | None) -> Any:
        assert command is not None
        self.commands.append(command)
        match command:
            case ("HGET", _, "shards"):
                return self.shards
            case ("HMGET", _, *names):
                return [self._stored(name) for name in names]
            case ("EXISTS", *keys):
                return sum(any(f":{name}:" in key for name in self.ready) for key in keys)
        raise AssertionError(command)

    def _stored(self, name: str) -> bytes | None:
        config = self.stored.get(name)
        if config is None:
            return None
        return b"damaged" if name in self.damaged else STORED_BEFORE + config.to_bytes()
