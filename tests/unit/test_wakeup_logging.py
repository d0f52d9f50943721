"""What a client logs about interrupted wake-ups: the interruption and the recovery, but not each attempt."""

import asyncio
import logging
import socket
import threading
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
RESTORED = "wake-ups restored: all subscriptions are confirmed"


def confirmed(answer: object) -> object:
    """Log the reply, and return it."""
    CONFIRMED.debug("%s", answer)
    return answer


class Connection:
    """A connection to a server that confirms each subscription. ``_sock`` is readable if there are replies."""

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


class AsyncConnection:
    """The same connection for a task."""

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
        """Do nothing: there is no socket."""


class FlakyServers:
    """A server that is unreachable at first: it accepts no connection, or returns no slots of the cluster."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.answer_s = 5.0
        self.left = FAILURES

    def attempt(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ConnectionError("refused")

    def update_slots(self) -> None:
        self.attempt()
        self.topology.update_from_cluster_slots([[0, HASH_SLOTS - 1, [b"a", 1]]], A)


class Servers(FlakyServers):
    def open_subscriber(self, server: str) -> Connection:
        self.attempt()
        return Connection()

    def refresh_slots(self) -> None:
        self.update_slots()


class AsyncServers(FlakyServers):
    async def open_subscriber(self, server: str) -> AsyncConnection:
        self.attempt()
        return AsyncConnection()

    async def refresh_slots(self) -> None:
        self.update_slots()


def log_texts(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if (record.levelno, record.name) == (level, "tickwheel")]


def channels(queue: str) -> list[str]:
    return [f"{queue}-{shard}" for shard in range(4)]


def in_thread(topology: Topology, is_logged: Callable[[], bool]) -> None:
    wakes = WakeupThread(Servers(topology), channels)  # type: ignore[arg-type]
    try:
        wakes.subscribe("work")
        eventually(is_logged, "wake-ups are restored")
        wakes.subscribe("other")
    finally:
        wakes.stop()


def in_task(topology: Topology, is_logged: Callable[[], bool]) -> None:
    async def run_client() -> None:
        wakes = WakeupTask(AsyncServers(topology), channels)  # type: ignore[arg-type]
        try:
            await wakes.subscribe("work")
            await eventually_in_task(is_logged, "wake-ups are restored")
            await wakes.subscribe("other")
        finally:
            await wakes.stop()

    asyncio.run(run_client())


@pytest.mark.parametrize("run_client", [in_thread, in_task])
@pytest.mark.parametrize(
    ("topology", "subject"),
    [(Topology, "subscribing again"), (partial(Topology, [A]), "no server returns the slots of the cluster")],
    ids=["server", "cluster"],
)
def test_an_interruption_is_one_warning_and_its_end_is_logged_once_all_channels_are_confirmed(
    run_client: Callable[[Topology, Callable[[], bool]], None],
    topology: Callable[[], Topology],
    subject: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "tickwheel")
    run_client(topology(), lambda: RESTORED in log_texts(caplog, logging.INFO))
    interrupted = f"wake-ups interrupted, {subject}: refused"
    assert log_texts(caplog, logging.WARNING) == [interrupted]
    assert log_texts(caplog, logging.DEBUG) == [interrupted] * (FAILURES - 1)
    assert log_texts(caplog, logging.INFO) == [RESTORED]
    assert sum("ssubscribe" in text for text in caplog.messages[: caplog.messages.index(RESTORED)]) == len(
        channels("work")
    )


def test_a_subscription_that_is_not_confirmed_in_time_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run_client() -> None:
        servers = AsyncServers(Topology())
        servers.left, servers.answer_s = 1_000_000, 0.001
        wakes = WakeupTask(servers, channels)  # type: ignore[arg-type]
        for _ in range(3):
            await wakes.subscribe("work")
        await wakes.stop()

    asyncio.run(run_client())
    assert (
        sum(
            text.startswith("the servers have not confirmed the subscriptions")
            for text in log_texts(caplog, logging.WARNING)
        )
        == 1
    )


def test_a_subscription_waits_for_its_confirmation_no_longer_than_for_an_answer() -> None:
    servers = Servers(Topology())
    servers.left, servers.answer_s = 1_000_000, 0.001
    wakes = WakeupThread(servers, channels)  # type: ignore[arg-type]
    subscribing = threading.Thread(target=wakes.subscribe, args=("work",), daemon=True)
    subscribing.start()
    # The client's default would wait for 5 s.
    subscribing.join(4)
    assert not subscribing.is_alive()
    wakes.stop()
