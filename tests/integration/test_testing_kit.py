"""The promises of the test kit to the tests of other programs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from tickwheel import InvalidArgument, Tickwheel, aio
from tickwheel.testing import PrivateServer, VirtualClock, sandbox

pytestmark = pytest.mark.integration

MS = timedelta(milliseconds=1)

USERS_TESTS = """
import asyncio
from datetime import UTC, datetime, timedelta

import pytest


def test_an_unpaid_order_is_cancelled(tickwheel, tickwheel_clock):
    orders = tickwheel.queue("orders")
    orders.enqueue(b"order 17", delay=timedelta(days=30))
    tickwheel_clock.advance(timedelta(days=30) - timedelta(milliseconds=1))
    assert orders.dequeue() == []
    tickwheel_clock.advance(timedelta(milliseconds=1))
    assert [message.payload for message in orders.dequeue()] == [b"order 17"]


def test_each_test_has_a_namespace_of_its_own(tickwheel):
    assert tickwheel.queues() == []


@pytest.mark.tickwheel(shards=4, now=datetime(2000, 1, 1, tzinfo=UTC))
def test_the_marker_gives_the_namespace_other_settings(tickwheel, tickwheel_clock):
    assert tickwheel_clock.now == datetime(2000, 1, 1, tzinfo=UTC)
    assert "shards=4" in repr(tickwheel)


@pytest.mark.tickwheel(shards=4)
def test_a_reminder_comes_after_a_week(tickwheel_aio, tickwheel_clock, tickwheel):
    async def program():
        async with tickwheel_aio as tw:
            await tw.queue("mail").enqueue(b"reminder", delay=timedelta(days=7))
            tickwheel_clock.advance(timedelta(days=7) - timedelta(milliseconds=1))
            assert await tw.queue("mail").dequeue() == []
            tickwheel_clock.advance(timedelta(milliseconds=1))
            [message] = await tw.queue("mail").dequeue()
            await message.complete()

    asyncio.run(program())
    assert tickwheel.queue("mail").counts()["completed"] == 1
"""


def test_the_fixtures_are_available_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(USERS_TESTS)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert "4 passed" in run.stdout, run.stdout + run.stderr


def test_the_clock_stands_still_until_it_is_advanced(tw: Tickwheel, clock: VirtualClock) -> None:
    then = clock.now
    tw.queue("q").enqueue(id="a", delay=MS)
    assert clock.now == then
    assert tw.queue("q").get("a").until == then + MS


def test_advancing_the_clock_runs_each_timer_at_its_own_time(tw: Tickwheel, clock: VirtualClock) -> None:
    start = clock.now
    queue = tw.create_queue("q", max_attempts=1, errored_retention=timedelta(hours=1))
    queue.enqueue(id="a")
    queue.dequeue(lease=timedelta(minutes=1))
    clock.advance(timedelta(minutes=30))
    # The lease ended at its time, not at the end of the thirty minutes, so the hour of retention counts from that time.
    assert queue.get("a").until == start + timedelta(hours=1, minutes=1)
    clock.advance(timedelta(minutes=31) - MS)
    assert queue.counts()["errored"] == 1
    clock.advance(MS)
    assert sum(queue.counts().values()) == 0


def test_advancing_over_years_takes_no_longer_than_the_work(tw: Tickwheel, clock: VirtualClock) -> None:
    tw.queue("q").enqueue(delay=timedelta(days=5 * 365))
    started = time.monotonic()
    clock.advance(timedelta(days=5 * 365))
    assert tw.queue("q").counts()["pending"] == 1
    assert time.monotonic() - started < 2


def test_after_a_jump_due_messages_wait_until_the_wheel_runs(tw: Tickwheel, clock: VirtualClock) -> None:
    queue = tw.queue("q")
    queue.enqueue(id="a", delay=timedelta(days=1))
    clock.set(clock.now + timedelta(days=2))
    assert queue.counts()["invisible"] == 1
    clock.run_due()
    assert queue.counts()["pending"] == 1
    assert queue.lateness().percentile(1) == 2**27 - 1


def test_a_clock_that_is_set_back_makes_nothing_early(tw: Tickwheel, clock: VirtualClock) -> None:
    queue, start = tw.queue("q"), clock.now
    queue.enqueue(id="a", delay=timedelta(hours=1))
    clock.advance(timedelta(minutes=59))
    clock.set(start)
    clock.advance(timedelta(hours=1) - MS)
    assert queue.counts()["invisible"] == 1
    clock.advance(MS)
    assert queue.counts()["pending"] == 1


def test_advance_refuses_a_negative_time(clock: VirtualClock) -> None:
    with pytest.raises(InvalidArgument, match="duration"):
        clock.advance(-MS)


def test_two_clocks_of_a_namespace_alternate(
    tw: Tickwheel, clock: VirtualClock, tickwheel_server: PrivateServer
) -> None:
    queue = tw.queue("q")
    queue.enqueue(id="a", delay=timedelta(hours=1))
    queue.enqueue(id="b", delay=timedelta(hours=3))
    other = VirtualClock(tickwheel_server.url, tw._context.namespace, clock.now)
    clock.advance(MS)
    other.advance(timedelta(hours=2))
    assert queue.counts()["pending"] == 1
    clock.advance(timedelta(hours=4))
    assert queue.counts()["pending"] == 2
    other.close()


async def _asyncio_program(url: str, namespace: str, clock: VirtualClock) -> list[bytes]:
    async with aio.Tickwheel(url, namespace=namespace, clock="_clock_test") as tw:
        await tw.queue("q").enqueue(b"later", delay=timedelta(days=1))
        clock.advance(timedelta(days=1))
        return [message.payload for message in await tw.queue("q").dequeue()]


def test_an_asyncio_client_follows_the_clock(
    tw: Tickwheel, clock: VirtualClock, tickwheel_server: PrivateServer
) -> None:
    assert asyncio.run(_asyncio_program(tickwheel_server.url, tw._context.namespace, clock)) == [b"later"]


def test_a_sandbox_leaves_nothing_behind(tickwheel_server: PrivateServer) -> None:
    with sandbox(tickwheel_server, shards=3, now=datetime(1999, 12, 31, tzinfo=UTC)) as (tw, clock):
        tw.queue("q").enqueue(delay=timedelta(days=1))
        clock.advance(timedelta(days=1))
        assert clock.now == datetime(2000, 1, 1, tzinfo=UTC)
        namespace = tw._context.namespace
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match=f"{namespace}*")) == []


def test_a_private_server_ends_with_its_program_even_if_the_program_is_killed() -> None:
    program = """
import os
from tickwheel.testing import PrivateServer
print(PrivateServer().url, flush=True)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
    until = time.monotonic() + 10
    with redis.Redis.from_url(url) as client:
        while time.monotonic() < until:
            try:
                client.ping()
            except redis.ConnectionError:
                break
        else:
            pytest.fail("the server still answers")
    socket = Path(url.removeprefix("unix://"))
    while socket.parent.exists():
        assert time.monotonic() < until, "the folder of the server still exists"


def test_a_private_server_may_be_closed_twice() -> None:
    server = PrivateServer(appendonly=True)
    with server.client(decode_responses=True) as client:
        assert client.config_get("appendonly") == {"appendonly": "yes"}
    server.close()
    server.close()
    assert not server.folder.exists()


def test_a_private_server_is_closed_though_a_forked_process_continues() -> None:
    server = PrivateServer()
    fork = os.fork()
    if fork == 0:
        signal.pause()
        os._exit(0)
    try:
        server.close()
        assert not server.folder.exists()
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)
