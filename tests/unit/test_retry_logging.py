"""What a client logs about unreachable servers: the failure and the recovery, but not each call or attempt."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from freezegun import freeze_time
from redis.exceptions import ConnectionError

from tickwheel.errors import Unavailable
from tickwheel.plan import Command, Request, Round
from tickwheel.redis import retry_budget
from tickwheel.redis.asyncio_executor import AsyncRedisExecutor
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ANSWER_S, ConnectionPools
from tickwheel.redis.replies import TemporaryError
from tickwheel.redis.retry_budget import RetryBudget
from tickwheel.redis.topology import HASH_SLOTS, Topology
from tickwheel.runtime.log_throttle import PAUSE_S, LogThrottle

pytestmark = pytest.mark.unit

WHERE = "redis+cluster://a:1,b:2,c:3"
REFUSED = ConnectionError("Error 111 connecting to a:1. Connection refused.")
PING_3, PING_63 = (Request(shard, command=("PING",)) for shard in (3, 63))


@pytest.fixture(autouse=True)
def debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tickwheel")


def log_texts(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def call(log_throttle: LogThrottle, failure: Exception, attempts: int = 5) -> RetryBudget:
    """Make a call of which ``attempts`` attempts fail with ``failure``."""
    budget = RetryBudget(WHERE, inf, log_throttle)
    for _ in range(attempts):
        budget.backoff_or_raise(failure, sent=False)
    return budget


def test_the_same_failure_of_all_calls_is_a_warning_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    log_throttle = LogThrottle()
    with freeze_time() as clock:
        call(log_throttle, REFUSED)
        clock.tick(timedelta(seconds=PAUSE_S - 1))
        call(log_throttle, REFUSED)
        assert len(log_texts(caplog)) == 1
        assert len(log_texts(caplog, logging.DEBUG)) == 9
        clock.tick(timedelta(seconds=1))
        call(log_throttle, REFUSED)
        assert len(log_texts(caplog)) == 2


def test_another_failure_is_logged_at_once_and_one_warning_covers_all_shards(caplog: pytest.LogCaptureFixture) -> None:
    log_throttle = LogThrottle()
    call(log_throttle, REFUSED)
    for shard in range(64):
        call(log_throttle, TemporaryError(f"no server of the cluster has shard {shard} now", on_other_server=True))
    unreachable, without_server = log_texts(caplog)
    assert unreachable.startswith(f"no answer from redis+cluster://a:1,… (attempt 1): {REFUSED}; retrying in ")
    assert without_server.startswith(
        "temporarily refused by redis+cluster://a:1,… (attempt 1): no server of the cluster has shard"
    )


def test_a_short_pause_is_logged_in_whole_milliseconds_and_never_as_none(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_budget, "full_jitter", lambda bound: bound / 100_000)
    call(LogThrottle(), REFUSED, attempts=1)
    [text] = log_texts(caplog)
    assert text.endswith("; retrying in 1 ms")


def test_an_error_names_every_server() -> None:
    with pytest.raises(Unavailable, match=r"^no answer from redis\+cluster://a:1,b:2,c:3 in 0\.0 s and 1 attempts: "):
        RetryBudget(WHERE, 0, LogThrottle()).backoff_or_raise(REFUSED, sent=False)


def test_a_call_that_is_stopped_is_not_retried_even_if_the_stop_comes_after_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = [False]
    budget = RetryBudget(WHERE, inf, LogThrottle(), lambda: stopped[0])
    budget.raise_if_stopped()
    budget.backoff_or_raise(REFUSED, sent=True)
    budget.raise_if_stopped()
    stopped[0] = True
    # The answer of an attempt that was sent may have the tokens of leases.
    budget.raise_if_stopped()
    monkeypatch.setattr(retry_budget, "STOP_GRACE_S", 0)
    with pytest.raises(Unavailable, match=r"in 0\.0 s and 1 attempts: .*; the call may have taken effect") as after:
        budget.raise_if_stopped()
    assert after.value.may_have_happened
    with pytest.raises(Unavailable, match=r"and 2 attempts: .*; nothing was done"):
        budget.backoff_or_raise(REFUSED, sent=False)
    with pytest.raises(Unavailable, match="and 1 attempts"):
        RetryBudget(WHERE, inf, LogThrottle(), lambda: True).backoff_or_raise(REFUSED, sent=False)
    # Before the first failure, nothing has to be ended.
    RetryBudget(WHERE, inf, LogThrottle(), lambda: True).raise_if_stopped()


def test_the_first_call_answered_after_a_failure_logs_the_recovery_and_no_other_call_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_throttle = LogThrottle()
    waiting = [call(log_throttle, REFUSED) for _ in range(3)]
    call(log_throttle, REFUSED, attempts=0).on_answer()
    assert log_texts(caplog, logging.INFO) == []
    for attempt in waiting:
        attempt.on_answer()
    # The server fails again for a moment, which is not logged.
    call(log_throttle, REFUSED).on_answer()
    assert log_texts(caplog, logging.INFO) == ["answered again by redis+cluster://a:1,… (attempt 6)"]


class Server:
    """A server that replies PONG after ``failures`` failed attempts to connect. It is its own pool and connection."""

    def __init__(self, failures: float) -> None:
        self._left = failures

    def connect(self) -> None:
        self._left -= 1
        if self._left >= 0:
            raise REFUSED

    def pack_commands(self, commands: list[Command]) -> list[Command]:
        return commands


class Pool(Server):
    _sock = SimpleNamespace(gettimeout=lambda: ANSWER_S, settimeout=lambda seconds: None)

    def get_connection(self) -> Any:
        self.connect()
        return self

    def send_packed_command(self, commands: list[Command]) -> None:
        """Accept all commands."""

    def read_response(self, *, disconnect_on_error: bool) -> str:
        return "PONG"

    def release(self, connection: Any) -> None:
        """Keep the connection."""


class AsyncPool(Server):
    async def get_connection(self) -> Any:
        self.connect()
        return self

    async def send_packed_command(self, commands: list[Command]) -> None:
        """Accept all commands."""

    async def read_response(self, *, disconnect_on_error: bool) -> str:
        return "PONG"

    async def release(self, connection: Any) -> None:
        """Keep the connection."""


class Halves:
    """A cluster of two servers: shard 3 is on the first, shard 63 on the second."""

    def __init__(self, first: Server, second: Server) -> None:
        self._pools = {"a:1": first, "b:2": second}
        self.topology = Topology(["a:1"])
        self.topology.update_from_cluster_slots([[0, 8_191, [b"a", 1]], [8_192, HASH_SLOTS - 1, [b"b", 2]]], "a:1")

    def pool(self, server: str) -> Any:
        return self._pools[server]


class Servers(ConnectionPools):
    def __init__(self, first: Server, second: Server) -> None:
        super().__init__("redis+cluster://a:1,b:2", 5)
        self._halves = Halves(first, second)
        self.topology = self._halves.topology

    def pool(self, server: str) -> Any:
        return self._halves.pool(server)

    def refresh_slots(self, unresponsive: Collection[str] = (), answer_s: float | None = None) -> None:
        """Keep the slots."""


class AsyncServers(AsyncConnectionPools):
    def __init__(self, first: Server, second: Server) -> None:
        super().__init__("redis+cluster://a:1,b:2", 5)
        self._halves = Halves(first, second)
        self.topology = self._halves.topology

    def pool(self, server: str) -> Any:
        return self._halves.pool(server)

    async def refresh_slots(self, unresponsive: Collection[str] = (), answer_s: float | None = None) -> None:
        """Keep the slots."""


def revive() -> None:
    """Do nothing: there is no embedded server."""


def blocking(failures: float, seconds: float, rounds: list[Round]) -> None:
    """Send rounds with one client. The second half of the cluster fails ``failures`` times."""
    io = RedisExecutor(Servers(Pool(0), Pool(failures)), WHERE, seconds)
    for step in rounds:
        with suppress(Unavailable):
            io.round(step.requests, allow_partial=step.allow_partial)


def with_asyncio(failures: float, seconds: float, rounds: list[Round]) -> None:
    async def send() -> None:
        servers = AsyncServers(AsyncPool(0), AsyncPool(failures))
        io = AsyncRedisExecutor(servers, WHERE, seconds, 0, revive)
        for step in rounds:
            with suppress(Unavailable):
                await io.round(step.requests, allow_partial=step.allow_partial)

    asyncio.run(send())


Send = Callable[[float, float, list[Round]], None]
clients = pytest.mark.parametrize("send", [blocking, with_asyncio])


@clients
def test_a_client_that_retries_warns_once(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    send(inf, 0.02, [Round([PING_63])] * 5)
    assert len(log_texts(caplog)) == 1
    assert len(log_texts(caplog, logging.DEBUG)) >= 4
    assert log_texts(caplog, logging.INFO) == []


@clients
def test_a_client_logs_that_a_call_was_answered_after_retries(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    send(3, 30, [Round([PING_3, PING_63])])
    assert log_texts(caplog, logging.INFO) == ["answered again by redis+cluster://a:1,… (attempt 4)"]


@clients
def test_a_partly_answered_call_logs_no_recovery(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    send(inf, 30, [Round([PING_3, PING_63], allow_partial=True)])
    assert len(log_texts(caplog)) == 1
    assert log_texts(caplog, logging.INFO) == []
