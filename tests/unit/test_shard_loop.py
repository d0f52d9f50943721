"""The loop of a shard whose server refuses connections: what the loop does after the end of a leadership."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from tests.support.in_thread import in_thread
from tests.support.wait_until import eventually
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.server_clock import ServerClock
from tickwheel.election.claims import EpochClaims
from tickwheel.election.election import OnFenced, UnwatchedLeadership
from tickwheel.event_process import reachability
from tickwheel.event_process.shard_loop import Connect, ShardLoop

pytestmark = pytest.mark.unit


class OneLeadership(UnwatchedLeadership):
    """An election that this process wins once. Another process can reach the shard, so `resign` ends the leadership."""

    kind = "test"
    unreadable_nodes = 0
    must_check_namespace = True
    on_fenced = OnFenced.COMPARE
    claims = EpochClaims(1)
    lost = False

    def acquire(self, shard: int, stop: threading.Event, on_loss: Callable[[], None]) -> "OneLeadership | None":
        if self.lost:
            stop.wait()
            return None
        self._on_loss = on_loss
        return self

    def resign(self, shard: int) -> bool:
        self.lost = True
        self._on_loss()
        return True

    def release(self) -> None: ...

    def leave(self) -> None: ...

    def close(self) -> None: ...


def refuse(shard: int) -> Any:
    raise ConnectionError("refused")


@contextmanager
def run_loop(connect: Connect = refuse) -> Iterator[ShardLoop]:
    queues: Any = None
    config = DriverConfig("tw", 0, queues, OneLeadership.kind)
    with closing(ShardLoop(connect, config, ServerClock(), OneLeadership())) as loop:
        # As if the clock guard held.
        loop.stats.held = True
        with in_thread(loop, stop_s=10):
            yield loop


@pytest.fixture(autouse=True)
def resign_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "RESIGN_AFTER_MS", 0)


def test_a_process_that_no_longer_leads_a_shard_does_not_report_that_the_clock_guard_holds() -> None:
    with run_loop() as loop:
        eventually(lambda: not loop.stats.held, "the end of the leadership is reported")


def test_after_a_resignation_the_pauses_between_two_attempts_to_connect_grow() -> None:
    attempts: list[float] = []

    def count(shard: int) -> Any:
        attempts.append(time.monotonic())
        refuse(shard)

    with run_loop(count):
        eventually(lambda: len(attempts) >= 5, "the loop tries to connect")
    # The first attempt led to the resignation. The shortest pauses after the next attempts are 25, 50 and 100 ms.
    assert attempts[4] - attempts[1] >= 0.175
