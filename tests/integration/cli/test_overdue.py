"""`tickwheel doctor` detects overdue messages of a wheel that no process drives, and raises no other alarm."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.cli.command_runner import Run, document
from tests.support.lock_file_driver import driving_with_lock_file
from tests.support.paused_process import pause
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.storage.keys import shard_key, slot_key
from tickwheel.storage.wheel_levels import LOWEST, lead_time, number, start
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)
FileEarlier = Callable[[int, datetime], None]


def moment(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def redis(tickwheel_server: PrivateServer) -> Any:
    with tickwheel_server.client() as client:
        yield client


@pytest.fixture
def file_earlier(tickwheel_server: PrivateServer, cli_client: Tickwheel, redis: Any) -> FileEarlier:
    """File a message into a slot of the level, at a time long before the start of the slot. Then stop the driver."""
    namespace = cli_client._context.namespace

    def file(level: int, due: datetime) -> None:
        due_ms = int(due.timestamp() * 1000)
        before_ms = start(level, number(level, due_ms)) - 2 * lead_time(level)
        clock = VirtualClock(tickwheel_server.url, namespace, moment(before_ms))
        with Tickwheel(tickwheel_server.url, namespace=namespace, clock=FRAGMENT) as tickwheel:
            tickwheel.queue("jobs").enqueue(id="late", due=due)
            clock.advance(3 * SECOND)
        clock.close()
        assert redis.exists(slot_key(namespace, 0, level, number(level, due_ms)))
        redis.hdel(shard_key(namespace, 0, "clock"), "now", "high")

    return file


def findings(run: Run, *options: str, code: int = 0) -> dict[str, tuple[str, str]]:
    """Return the verdict and the text of each finding of doctor."""
    return {
        one["check"]: (one["verdict"], one["text"]) for one in document(run("doctor", "--json", *options, code=code))
    }


def now_ms(redis: Any) -> int:
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def test_doctor_reports_an_overdue_message_whose_slot_has_not_ended(
    run: Run, redis: Any, file_earlier: FileEarlier
) -> None:
    # The slot of level 3 started at least 10 s ago, and has not ended, or ended less than 10 s ago.
    file_earlier(3, moment(start(3, number(3, now_ms(redis) - 10_000)) + 1_000))
    verdicts = findings(run, code=1)
    assert verdicts["driver"][0] == "bad"
    assert "no event process drives the shard: run `tickwheel events`" in verdicts["driver"][1]
    assert "does not move: 1; no event process drives the shard" in verdicts["overdue"][1]
    assert "queue jobs, message 'late'" in verdicts["overdue"][1]


@pytest.mark.parametrize("level", [4, 5])
def test_doctor_reports_a_large_slot_that_a_driver_would_have_begun_to_cascade(
    run: Run, redis: Any, file_earlier: FileEarlier, level: int
) -> None:
    # The cascade of the slot was due at least 11 s ago, and the slot has not ended.
    slot = number(level, now_ms(redis) - 11_000 + lead_time(level))
    file_earlier(level, moment(start(level, slot + 1) - 1))
    verdict, text = findings(run, "--quick", code=1)["driver"]
    assert verdict == "bad"
    assert "no event process drives the shard: run `tickwheel events`" in text


def test_doctor_raises_no_alarm_while_an_event_process_catches_up(
    run: Run,
    redis: Any,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    file_earlier: FileEarlier,
) -> None:
    file_earlier(3, moment(start(3, number(3, now_ms(redis) - 10_000)) + 1_000))
    namespace = cli_client._context.namespace
    redis.hdel(shard_key(namespace, 0, "clock"), "fence", "election", "owner")
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True):
        eventually(lambda: redis.hget(shard_key(namespace, 0, "clock"), "fence"), "the shard is claimed")
        verdicts = findings(run)
        eventually(lambda: cli_client.queue("jobs").counts()["pending"], "the message becomes pending")
        assert "overdue" not in findings(run)
    assert verdicts["driver"][0] == "ok"
    assert "overdue" not in verdicts


def test_doctor_raises_no_alarm_for_a_driven_wheel_with_timers_on_every_level(
    run: Run, redis: Any, cli_client: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    namespace = cli_client._context.namespace
    queue = cli_client.queue("jobs")
    now = now_ms(redis)
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True):
        for level in range(LOWEST, 6):
            for slots_ahead in (1, 2, 3, 4):
                first = start(level, number(level, now) + slots_ahead)
                queue.enqueue(due=moment(first))
                queue.enqueue(due=moment(first - 1))
        slots = shard_key(namespace, 0, "slots")
        eventually(lambda: redis.xlen(shard_key(namespace, 0, "inbox")) == 0, "the timers are filed")
        assert {name[:1] for name in redis.zrange(slots, 0, -1)} >= {b"3", b"4", b"5"}
        until = now + 12_000
        while now_ms(redis) < until:
            verdicts = findings(run)
            assert verdicts["driver"] == ("ok", verdicts["driver"][1])
            assert "overdue" not in verdicts


def test_doctor_reports_overdue_messages_of_a_frozen_event_process(
    run: Run, redis: Any, cli_client: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    namespace = cli_client._context.namespace
    clock = shard_key(namespace, 0, "clock")
    with driving_with_lock_file(tickwheel_server.url, namespace) as pid:
        eventually(lambda: redis.hget(clock, "high"), "the shard is claimed")
        pause(pid)
        try:
            enqueue_earlier(tickwheel_server, namespace, redis)
            verdicts = findings(run, code=1)
        finally:
            os.kill(pid, signal.SIGCONT)
    verdict, text = verdicts["overdue"]
    assert verdict == "bad"
    assert "does not move: 1; a process of this host holds the lock, but is frozen or stuck" in text


def enqueue_earlier(server: PrivateServer, namespace: str, redis: Any) -> None:
    """Enqueue a message that is due now as if it had been enqueued a minute ago, with a delay of half a minute."""
    clock = shard_key(namespace, 0, "clock")
    with Tickwheel(server.url, namespace=namespace, clock=FRAGMENT) as tickwheel:
        redis.hset(clock, "now", now_ms(redis) - 60_000)
        tickwheel.queue("jobs").enqueue(delay=30 * SECOND)
    redis.hdel(clock, "now")
