"""What a client tells of interrupted wake-ups: not each attempt to subscribe again; and that they are back."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest
from redis.exceptions import ConnectionError

from tests.support.wait_until import eventually, eventually_in_task
from tickwheel.redis.topology import HASH_SLOTS, Topology
from tickwheel.redis.wakeup_task import WakeupTask
from tickwheel.redis.wakeup_thread import WakeupThread

pytestmark = pytest.mark.unit

A = "a:1"
FAILURES = 2
CONFIRMED = logging.getLogger("tickwheel.confirmed")
BACK = "wake-ups restored: all subscriptions are confirmed"


def confirmed(answer: object) -> object:
    """The answer, with a line of the log about it."""
    CONFIRMED.debug("%s", answer)
    return answer


class Line:
    """A connection to a server that confirms each subscription. What is there to be read makes ``_sock`` readable."""

    def __init__(self) -> None:
        self._sock, self._far = socket.socketpair()
        self._answers: deque[object] = deque()

    def pack_commands(self, commands: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        return commands

    def send_packed_command(self, commands: list[tuple[str, bytes]]) -> None:
        self._answers += [[b"ssubscribe", channel, 1] for _, channel in commands]
        self._far.send(b".")

    def can_read(self, timeout: float) -> bool:
        if not self._answers:
            self._sock.recv(1_024)
        return bool(self._answers)

    def read_response(self, *, disconnect_on_error: bool) -> object:
        return confirmed(self._answers.popleft())

    def disconnect(self) -> None:
        self._sock.close()
        self._far.close()


class AsyncLine:
    """The same for a task."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[object] = asyncio.Queue()

    def pack_commands(self, commands: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        return commands

    async def send_packed_command(self, commands: list[tuple[str, bytes]]) -> None:
        for _, channel in commands:
            self._answers.put_nowait([b"ssubscribe", channel, 1])

    async def read_response(self, *, disconnect_on_error: bool) -> object:
        return confirmed(await self._answers.get())

    async def disconnect(self, *, nowait: bool) -> None:
        """Nothing to let go of."""


class Returning:
    """A server that is away at first: no connection is to be had, or, of a cluster's, no map."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.left = FAILURES

    def ask(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ConnectionError("refused")

    def learn(self) -> None:
        self.ask()
        self.topology.update_from_cluster_slots([[0, HASH_SLOTS - 1, [b"a", 1]]], A)


class Servers(Returning):
    def open_subscriber(self, server: str) -> Line:
        self.ask()
        return Line()

    def refresh_slots(self) -> None:
        self.learn()


class AsyncServers(Returning):
    async def open_subscriber(self, server: str) -> AsyncLine:
        self.ask()
        return AsyncLine()

    async def refresh_slots(self) -> None:
        self.learn()


def log_texts(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if (record.levelno, record.name) == (level, "tickwheel")]


def channels(queue: str) -> list[str]:
    return [f"{queue}-{shard}" for shard in range(4)]


def in_thread(topology: Topology, is_told: Callable[[], bool]) -> None:
    wakes = WakeupThread(Servers(topology), channels)  # type: ignore[arg-type]
    try:
        wakes.subscribe("work")
        eventually(is_told, "wake-ups are back")
        wakes.subscribe("other")
    finally:
        wakes.stop()


def in_task(topology: Topology, is_told: Callable[[], bool]) -> None:
    async def watch() -> None:
        wakes = WakeupTask(AsyncServers(topology), channels)  # type: ignore[arg-type]
        try:
            await wakes.subscribe("work")
            await eventually_in_task(is_told, "wake-ups are back")
            await wakes.subscribe("other")
        finally:
            await wakes.stop()

    asyncio.run(watch())


@pytest.mark.parametrize("watch", [in_thread, in_task])
@pytest.mark.parametrize(
    ("topology", "what"),
    [(Topology, "subscribing again"), (partial(Topology, [A]), "no server returns the slots of the cluster")],
    ids=["server", "cluster"],
)
def test_an_interruption_is_one_warning_and_its_end_is_logged_once_all_channels_are_confirmed(
    watch: Callable[[Topology, Callable[[], bool]], None],
    topology: Callable[[], Topology],
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "tickwheel")
    watch(topology(), lambda: BACK in log_texts(caplog, logging.INFO))
    interrupted = f"wake-ups interrupted, {what}: refused"
    assert log_texts(caplog, logging.WARNING) == [interrupted]
    assert log_texts(caplog, logging.DEBUG) == [interrupted] * (FAILURES - 1)
    assert log_texts(caplog, logging.INFO) == [BACK]
    assert sum("ssubscribe" in text for text in caplog.messages[: caplog.messages.index(BACK)]) == len(channels("work"))


def test_a_subscription_that_is_not_confirmed_in_time_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tickwheel.redis.wakeup_task.CONFIRM_S", 0.001)

    async def watch() -> None:
        servers = AsyncServers(Topology())
        servers.left = 1_000_000
        wakes = WakeupTask(servers, channels)  # type: ignore[arg-type]
        for _ in range(3):
            await wakes.subscribe("work")
        await wakes.stop()

    asyncio.run(watch())
    assert (
        sum(text.startswith("no subscription to queue 'work' yet") for text in log_texts(caplog, logging.WARNING)) == 1
    )
