"""Reads of all queues take a limited share of the time: new queues wait for the next read, and the others do not."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel, limits
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.event_process.queue_directory import READ_PAUSE_FACTOR, READ_PAUSE_MAX_MS, QueueDirectory
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Request
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.time import monotonic_ms
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.storage.keys import namespace_key, queues_key, shard_key
from tickwheel.testing import PrivateServer
from tickwheel.testing.driver_clock import ManualClock
from tickwheel.testing.manual_wheel import ManualWheel
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

START_MS = 1_900_000_000_000
READ_MS = 20
PAUSE_MS = READ_PAUSE_FACTOR * READ_MS


class SlowExecutor(DriverExecutor):
    """A read of all queues takes some time on the clock of the event process."""

    spent_ms = 0.0
    read_ms = float(READ_MS)

    def round(self, requests: list[Request], *args: Any, **options: Any) -> Any:
        if any(request.command[0] == "HGETALL" for request in requests if request.command is not None):
            self.spent_ms += self.read_ms
        return super().round(requests, *args, **options)


class SlowNamespace:
    """A namespace whose metadata shard answers slowly, and whose wheel and clock the test controls."""

    def __init__(self, client: Tickwheel, server: Any, io: SlowExecutor, context: NamespaceContext) -> None:
        self.client = client
        self.io = io
        self._server = server
        self._key = shard_key(context.namespace, 0, "clock")
        self._clock = ManualClock(START_MS)
        self.directory = QueueDirectory(context, io, clock=lambda: self._clock.monotonic() + io.spent_ms)
        self.wheel = ManualWheel(
            lambda shard: io.connect(shard, self._key), context.namespace, 0, self.directory, self._clock
        )
        self.advance(0)

    def advance(self, ms: int) -> None:
        self._clock.now_ms += ms
        self._server.hset(self._key, "now", self._clock.now_ms)
        self.wheel.run_due()

    def create_queue(self, name: str) -> Queue:
        """Return a new queue, as a client of an older version creates it: only a read of all queues finds it."""
        queue = self.client.create_queue(name)
        self._server.hdel(namespace_key(self.client._context.namespace), f"queue:{queue.config().number}")
        return queue

    def queue_with_timer(self, name: str) -> Queue:
        """Return such a queue with the message "m", which is due in a millisecond."""
        queue = self.create_queue(name)
        queue.enqueue(id="m", delay=timedelta(milliseconds=1))
        return queue


@pytest.fixture
def slow(tickwheel_server: PrivateServer, namespace: str, server: Any) -> Iterator[SlowNamespace]:
    url = tickwheel_server.url
    with (
        Tickwheel(url, namespace=namespace, clock=FRAGMENT, history="relay", drive=False) as client,
        closing(SlowExecutor(ConnectionPools(url), url, 10)) as io,
    ):
        yield SlowNamespace(client, server, io, client._context)


def test_the_timers_of_a_new_queue_wait_for_the_next_read_and_those_of_known_queues_fire(slow: SlowNamespace) -> None:
    known = slow.queue_with_timer("known")
    slow.advance(1)
    assert known.get("m").state == "pending"
    assert slow.directory.read_pause_ms == PAUSE_MS
    new = slow.queue_with_timer("new")
    known.enqueue(id="next", delay=timedelta(milliseconds=1))
    slow.advance(PAUSE_MS - 1)
    assert (known.get("next").state, new.get("m").state) == ("pending", "invisible")
    slow.advance(1)
    assert new.get("m").state == "pending"


def test_the_timers_of_a_queue_whose_row_is_found_alone_do_not_wait(slow: SlowNamespace) -> None:
    slow.directory.queues_with_sinks(monotonic_ms())
    new = slow.client.create_queue("new")
    new.enqueue(id="m", delay=timedelta(milliseconds=1))
    slow.advance(1)
    assert (new.get("m").state, slow.directory.read_pause_ms) == ("pending", PAUSE_MS - 1)


def test_the_pause_after_a_read_of_a_server_that_answers_late_is_limited(slow: SlowNamespace) -> None:
    slow.io.read_ms = 10_000
    slow.directory.queues_with_sinks(monotonic_ms())
    assert slow.directory.read_pause_ms == READ_PAUSE_MAX_MS


def test_the_relay_waits_for_the_next_read_if_an_event_has_a_new_queue(slow: SlowNamespace) -> None:
    known = slow.create_queue("known").config().number
    slow.directory.queues_with_sinks(monotonic_ms())
    new = slow.create_queue("new").config().number
    waits = []

    def wait(seconds: float) -> bool:
        waits.append(1_000 * seconds)
        slow.advance(PAUSE_MS)
        return False

    assert slow.directory.confirm([known], wait)
    assert waits == []
    assert not slow.directory.confirm([known, new], lambda _: True)
    assert slow.directory.confirm([known, new], wait)
    assert waits == [PAUSE_MS]
    found = slow.directory.lookup(new)
    assert found is not None
    assert found.name == "new"


def test_a_relay_begins_with_a_read_of_all_queues_which_one_thread_makes_for_all(slow: SlowNamespace) -> None:
    number = slow.create_queue("a").config().number
    slow.directory.queues_with_sinks(monotonic_ms())
    stood_by = monotonic_ms()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(1_000 * seconds)
        slow.advance(PAUSE_MS)
        return False

    # The number is given again, and nothing has noticed it.
    key = queues_key(slow.client._context.namespace)
    slow._server.hset(key, "b", slow._server.hget(key, "a"))
    slow._server.hdel(key, "a")
    assert not slow.directory.refresh(stood_by, lambda _: True)
    assert slow.directory.refresh(stood_by, wait)
    found = slow.directory.cached(number)
    assert found is not None
    assert (found.name, waits) == ("b", [PAUSE_MS])
    assert slow.directory.refresh(stood_by, wait)
    assert waits == [PAUSE_MS]


def test_a_forwarder_reloads_its_queues_after_the_pause(
    slow: SlowNamespace, tickwheel_server: PrivateServer, server: Any
) -> None:
    context, url = slow.client._context, tickwheel_server.url
    shard = FencedShard(context.namespace, 0)
    stopping = threading.Event()
    with closing(DriverExecutor(ConnectionPools(url), url, 10)) as io, closing(KafkaProducers("127.0.0.1:1")) as kafka:
        forwarder = SinkForwarder(
            lambda number: io.connect(number, shard.keys["clock"]),
            shard,
            context=context,
            io=io,
            queue_lookup=slow.directory,
            sinks=SinkRegistry(context.namespace, kafka),
            stats=WheelStats(),
        )
        thread = threading.Thread(target=forwarder.run, args=(stopping, lambda: None))
        thread.start()
        try:
            eventually(lambda: slow.directory.read_pause_ms > 0 and forwarder._outdated_ms is None, "the first read")
            before = slow.io.spent_ms
            slow.client.create_queue("q", sink="kafka://topic").enqueue(delay=timedelta(hours=1))
            eventually(lambda: forwarder._outdated_ms is not None, "the forwarder notices the new queue")
            assert (slow.io.spent_ms, [*forwarder._queues]) == (before, [])
            slow.advance(PAUSE_MS)
            eventually(lambda: [*forwarder._queues] == ["q"], "the forwarder reloads its queues")
        finally:
            stopping.set()
            forwarder.wake()
            thread.join()
            forwarder.close()


def test_the_relay_waits_for_the_next_read_if_the_number_of_an_event_was_given_again(
    slow: SlowNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    number = slow.create_queue("old").config().number
    slow.directory.queues_with_sinks(monotonic_ms())
    slow.client.delete_queue("old")
    slow.create_queue("new")
    assert not slow.directory.confirm([number], lambda _: True)
    assert slow.directory.cached(number) is None
