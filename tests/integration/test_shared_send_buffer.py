"""All shards of a process share one buffer: messages for missing topics do not fill it, whatever their shards."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.sink_forwarders import running, sink_forwarders
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SHARDS = 4
PAYLOAD = bytes(10_000)
# The buffer has room for 20 such messages, and unconfirmed sinks for 10.
BUFFER = 200_000
MISSING = 20


class Sinks:
    """Acknowledges the messages of queues "good…", and keeps the others in the buffer until `refuse_all`."""

    def __init__(self) -> None:
        self.unconfirmed_buffer = UnconfirmedBuffer(BUFFER // 2)
        self.kept: list[DeliveryCallback] = []
        self._lock = threading.Lock()

    def sink(self, queue: str, url: str) -> "Sinks":
        return self

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        with self._lock:
            if (len(self.kept) + 1) * len(PAYLOAD) > BUFFER:
                return False
            if not message.queue.startswith("good"):
                self.kept.append(on_delivery)
                return True
        on_delivery(DeliveryStatus.ACKNOWLEDGED, "")
        return True

    def refuse_all(self) -> None:
        with self._lock:
            kept, self.kept = self.kept, []
        for on_delivery in kept:
            on_delivery(DeliveryStatus.REFUSED, "no such topic")


@pytest.fixture
def tw(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS, drive=False) as opened:
        yield opened


@pytest.fixture
def sinks(tickwheel_server: PrivateServer, tw: Tickwheel) -> Iterator[Sinks]:
    """Run a forwarder for each shard, with sinks of one broker."""
    made = Sinks()
    with sink_forwarders(SinkForwarder, tw, tickwheel_server.url, made) as forwarders, running(*forwarders):
        yield made


def test_messages_for_missing_topics_leave_half_of_the_buffer_to_confirmed_sinks(tw: Tickwheel, sinks: Sinks) -> None:
    good = tw.create_queue("good", sink="kafka://good")
    good.enqueue_many(NewMessage() for _ in range(100))
    eventually(lambda: good.counts()["completed"] == 100, "the sink is confirmed on all shards")
    missing = [tw.create_queue(f"missing-{n}", sink=f"kafka://missing-{n}") for n in range(MISSING)]
    for queue in missing:
        queue.enqueue_many(NewMessage(PAYLOAD, max_attempts=1) for _ in range(3))
    eventually(lambda: len(sinks.kept) * len(PAYLOAD) > BUFFER * 0.4, "the missing topics have their half")
    good.enqueue_many(NewMessage() for _ in range(100))
    eventually(lambda: good.counts()["completed"] == 200, "messages of the confirmed sink are sent meanwhile")
    assert len(sinks.kept) * len(PAYLOAD) < BUFFER * 0.6
    # A new sink waits until some of them have failed.
    new = tw.create_queue("good-new", sink="kafka://new")
    new.enqueue()

    def is_finished() -> bool:
        sinks.refuse_all()
        return all(queue.counts()["errored"] == 3 for queue in missing) and new.counts()["completed"] == 1

    eventually(is_finished, "all messages are sent")
