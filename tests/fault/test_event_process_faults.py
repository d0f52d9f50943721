"""Event processes, killed and frozen: what they left undone is done once by the next, and nothing by them."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tickwheel import NewMessage, Tickwheel, transitions
from tickwheel.doctor import audit
from tickwheel.keys import shard_key
from tickwheel.record import State
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.fault

KILLS = 200 if os.environ.get("TICKWHEEL_SOAK") else 20
MESSAGES = KILLS * 2_000 if KILLS < 100 else 300_000


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    namespace = f"fault-{os.urandom(6).hex()}"
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as found:
        yield found
    tickwheel_server.clear(namespace)


@contextmanager
def started(tickwheel: Tickwheel, server: PrivateServer, lock: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An event process in a process of its own; killed at the end, if it is still there."""
    where = ["--url", server.url, "--namespace", tickwheel._core.namespace, "--lock", str(lock)]
    process = subprocess.Popen([sys.executable, "-m", "tickwheel.driving", *where], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def eventually(condition: Callable[[], Any], what: str, seconds: float = 30) -> None:
    pause, until = threading.Event(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"never: {what}"
        pause.wait(0.005)


def history(tickwheel: Tickwheel, server: Any) -> list[transitions.Transition]:
    entries = server.xrange(shard_key(tickwheel._core.namespace, 0, "events"))
    return [transition for _, fields in entries for transition in transitions.decode(fields[b"e"])]


def fence(tickwheel: Tickwheel, server: Any) -> bytes | None:
    found: bytes | None = server.hget(shard_key(tickwheel._core.namespace, 0, "clock"), "fence")
    return found


def wait_for_another_fence(tickwheel: Tickwheel, server: Any, than: bytes | None) -> None:
    eventually(lambda: fence(tickwheel, server) != than, "claimed")


@pytest.mark.timeout(1_800)
def test_killed_at_any_point_of_cascade_and_promote_nothing_is_lost_or_early_or_done_twice(
    tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    chance, today = random.Random(0), datetime.now(UTC)
    with sandbox(tickwheel_server, now=today - timedelta(days=3), history="relay") as (tickwheel, clock):
        # Enqueued three days ago, filed on all levels, and nobody there since. A quarter is not yet due.
        jobs = tickwheel.create_queue("jobs")
        times = [today + timedelta(hours=chance.choice([-1, -1, -1, 1]) * chance.uniform(1, 70)) for _ in range(400)]
        due = {f"m{n}": chance.choice(times) for n in range(MESSAGES)}
        jobs.enqueue_many(NewMessage(id=id, due=moment) for id, moment in due.items())
        clock.advance(timedelta(seconds=3))
        server.hdel(shard_key(tickwheel._core.namespace, 0, "clock"), "election")

        found_pending = set()
        for kill in range(KILLS):
            before = fence(tickwheel, server)
            with started(tickwheel, tickwheel_server, tmp_path / "lock"):
                wait_for_another_fence(tickwheel, server, before)
                threading.Event().wait(chance.uniform(0, 0.02))
            found_pending.add(jobs.counts()["pending"])
            if kill % (KILLS // 4) == 0:
                assert not tickwheel._run(audit(tickwheel._core))
        expected = {id for id, moment in due.items() if moment <= today}
        with started(tickwheel, tickwheel_server, tmp_path / "lock"):
            eventually(lambda: jobs.counts()["pending"] == len(expected), "all promoted that is due")
        promoted = [one for one in history(tickwheel, server) if one.to_state == State.PENDING]

    assert Counter(one.id for one in promoted) == Counter(expected)
    assert all(one.time_ms >= due[one.id].timestamp() * 1000 - 1 for one in promoted)
    assert len(found_pending) > KILLS // 4, f"not killed at work, but at {found_pending}"


def test_a_process_frozen_through_a_takeover_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    jobs = tickwheel.create_queue("jobs")
    with started(tickwheel, tickwheel_server, tmp_path / "lock of one host") as frozen:
        wait_for_another_fence(tickwheel, server, None)
        # Due while it is frozen, so that it wakes with something to fire.
        jobs.enqueue_many(NewMessage(delay=timedelta(seconds=1)) for _ in range(2_000))
        first = fence(tickwheel, server)
        frozen.send_signal(signal.SIGSTOP)
        with started(tickwheel, tickwheel_server, tmp_path / "lock of another host"):
            wait_for_another_fence(tickwheel, server, first)
            eventually(lambda: jobs.counts()["pending"] == 2_000, "all promoted")
            second = fence(tickwheel, server)
            jobs.enqueue_many(NewMessage(delay=timedelta(seconds=1)) for _ in range(2_000))

            frozen.send_signal(signal.SIGCONT)
            assert frozen.wait(30) != 0
            assert fence(tickwheel, server) == second
            eventually(lambda: jobs.counts()["pending"] == 4_000, "the second goes on")
    assert not tickwheel._run(audit(tickwheel._core))
