"""The turns of the queues with a sink: what others do to their queues delays no queue."""

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from tests.support.sink_forwarders import running, sink_forwarders
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, Queue, Tickwheel
from tickwheel.operations.dequeue import Dequeue
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer
from tickwheel.storage.keys import queues_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

COUNT = 20


class Sink:
    """The sink of one URL. It accepts each message."""

    def __init__(self, url: str, sent: list[tuple[str, str]]) -> None:
        self._url = url
        self._sent = sent

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        self._sent.append((message.queue, self._url))
        on_delivery(DeliveryStatus.ACKNOWLEDGED, "")
        return True


class Sinks:
    """The sinks of all URLs. ``sent`` has the queue and the URL of each message."""

    def __init__(self) -> None:
        self.unconfirmed_buffer = UnconfirmedBuffer(2**20)
        self.sent: list[tuple[str, str]] = []

    def sink(self, queue: str, url: str) -> Sink:
        return Sink(url, self.sent)


class Forwarder(SinkForwarder):
    """A forwarder that records its turns and counts its reloads."""

    reloads = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turns: list[str] = []

    def _take_next_queue(self) -> str | None:
        queue = super()._take_next_queue()
        if queue is not None:
            self.turns.append(queue)
        return queue

    def _reload_queues(self, *args: Any) -> None:
        super()._reload_queues(*args)
        self.reloads += 1


class Forwarding:
    """The forwarder of the namespace's only shard, and what it has sent."""

    def __init__(self, forwarder: Forwarder, sinks: Sinks) -> None:
        self.forwarder, self.sinks = forwarder, sinks

    def running(self) -> AbstractContextManager[None]:
        return running(self.forwarder)


@pytest.fixture
def tw(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as opened:
        yield opened


@pytest.fixture
def forwarding(tickwheel_server: PrivateServer, tw: Tickwheel, namespace: str) -> Iterator[Forwarding]:
    url, sinks = tickwheel_server.url, Sinks()
    with (
        # The forwarder's own context does not know the changes that the client makes.
        Tickwheel(url, namespace=namespace, drive=False) as own,
        sink_forwarders(Forwarder, own, url, sinks) as [forwarder],
    ):
        yield Forwarding(forwarder, sinks)


def create_queues(tw: Tickwheel) -> list[Queue]:
    return [tw.create_queue(f"q-{n}", sink=f"kafka://topic-{n}") for n in range(COUNT)]


def completed(queues: list[Queue], count: int = 1) -> None:
    eventually(lambda: all(queue.counts()["completed"] == count for queue in queues), "the messages are sent")


def test_a_change_of_a_queue_causes_a_dequeue_from_this_queue_only(tw: Tickwheel, forwarding: Forwarding) -> None:
    queues, forwarder = create_queues(tw), forwarding.forwarder
    with forwarding.running():
        eventually(lambda: {*forwarder.turns} == {queue.name for queue in queues}, "each queue has had its turn")
        eventually(lambda: forwarder._outdated_ms is None, "the forwarder is idle")
        before = forwarder.reloads
        forwarder.turns.clear()
        tw.create_queue("q-1", update=True, max_attempts=7)
        tw.create_queue("new", sink="kafka://new")
        tw.create_queue("of-workers")
        eventually(lambda: {"q-1", "new"} <= {*forwarder.turns}, "the changed queues have their turns")
        eventually(lambda: forwarder.reloads > before and forwarder._outdated_ms is None, "the forwarder is idle")
        assert {*forwarder.turns} == {"q-1", "new"}
        # The other queues are still subscribed.
        queues[2].enqueue()
        completed(queues[2:3])


def test_the_messages_of_a_queue_go_to_its_new_sink(tw: Tickwheel, forwarding: Forwarding) -> None:
    queue = tw.create_queue("q", sink="kafka://a")
    with forwarding.running():
        queue.enqueue()
        completed([queue])
        for count, sink in enumerate(("kafka://b", "kafka://a"), 2):
            tw.create_queue("q", update=True, sink=sink)
            queue.enqueue()
            completed([queue], count)
    assert [url for _, url in forwarding.sinks.sent] == ["kafka://a", "kafka://b", "kafka://a"]


def test_a_queue_is_forwarded_whenever_it_is_unblocked(tw: Tickwheel, forwarding: Forwarding) -> None:
    queue, other = (tw.create_queue(name, sink="kafka://topic") for name in ("q", "other"))
    with forwarding.running():
        for count in range(1, 11):
            queue.block(enqueue=False)
            queue.enqueue()
            other.enqueue()
            completed([other], count)
            assert queue.counts()["completed"] == count - 1
            queue.unblock()
            completed([queue], count)


def test_a_queue_is_dequeued_again_if_the_shard_learns_late_that_it_is_not_blocked(
    tw: Tickwheel, forwarding: Forwarding, server: Any, namespace: str
) -> None:
    queue, rows, turns = tw.create_queue("q", sink="kafka://topic"), queues_key(namespace), forwarding.forwarder.turns
    queue.block(enqueue=False)
    queue.enqueue()
    with forwarding.running():
        eventually(lambda: turns == ["q"], "the queue has had its turn")
        stored = server.hget(rows, "q")
        version = int.from_bytes(stored[:4], "big") + 1
        settings = json.dumps(json.loads(stored[10:]) | {"dequeue_blocked": False}).encode()
        server.hset(rows, "q", version.to_bytes(4, "big") + stored[4:10] + settings)
        tw.create_queue("other")
        eventually(lambda: turns == ["q", "q"], "the changed queue has had its turn")
        assert queue.counts()["completed"] == 0
        # The client reads the new configuration, and sends its version to the shard.
        tw._context.forget_queue("q")
        queue.enqueue(delay=timedelta(hours=1))
        completed([queue])


def test_a_queue_whose_dequeue_always_fails_has_its_turn_after_all_others(
    tw: Tickwheel, forwarding: Forwarding, server: Any, namespace: str
) -> None:
    queues, failing = create_queues(tw), tw.create_queue("failing", sink="kafka://failing")
    rows = queues_key(namespace)
    # The sinks of the other queues are confirmed, so that the failing queue has every second turn of the first run.
    with forwarding.running():
        for queue in queues:
            queue.enqueue()
        completed(queues)
    stored = server.hget(rows, "failing")
    server.hset(rows, "failing", stored[:10] + json.dumps(json.loads(stored[10:]) | {"lease_ms": 1}).encode())
    failing.enqueue()

    def messages_of_a_run() -> int:
        """Run until the queue fails, and return the number of messages that the others have sent."""
        forwarding.sinks.sent.clear()
        with pytest.raises(InvalidArgument):
            forwarding.forwarder.run(threading.Event(), lambda: None)
        # The first run can send the message of the other queue, too, before it reads the damaged configuration.
        return sum(queue != failing.name for queue, _ in forwarding.sinks.sent)

    for queue in queues:
        queue.enqueue()
    assert messages_of_a_run() + messages_of_a_run() == COUNT
    # All runs after the first one send all messages that are due.
    for queue in queues:
        queue.enqueue()
    assert messages_of_a_run() == COUNT


def test_a_queue_has_another_turn_if_its_leased_message_was_cancelled(
    tw: Tickwheel, forwarding: Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tw.create_queue("q", sink="kafka://topic")
    # The payloads are stored apart from the records, so they are read after the lease.
    for n in range(3):
        queue.enqueue(b"x" * 5_000, id=f"m-{n}")
    build = Dequeue._build_messages

    def cancel_first(*arguments: Any) -> Any:
        monkeypatch.setattr(Dequeue, "_build_messages", build)
        queue.cancel("m-0")
        return build(*arguments)

    monkeypatch.setattr(Dequeue, "_build_messages", cancel_first)
    with forwarding.running():
        completed([queue], 2)
    assert queue.counts()["cancelled"] == 1
