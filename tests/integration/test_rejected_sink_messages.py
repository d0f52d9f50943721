"""Messages that the broker rejects at the same time do not delay the messages of other sinks until all have failed."""

import pytest

from tests.support.sink_forwarders import running, sink_forwarders
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.sinks.forwarder import REJECTED_AT_ONCE, SinkForwarder
from tickwheel.sinks.settler import SinkSettler
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

COUNT = 5 * REJECTED_AT_ONCE


class Sinks:
    """The sinks of all queues. The sink of the queue "good" accepts each message, the others answer later."""

    def __init__(self) -> None:
        self.unconfirmed_buffer = UnconfirmedBuffer(2**20)
        self.unanswered: list[DeliveryCallback] = []
        self.order: list[str] = []

    def sink(self, queue: str, url: str) -> "Sinks":
        return self

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        if message.queue == "good":
            self.order.append("sent")
            on_delivery(DeliveryStatus.ACKNOWLEDGED, "")
        else:
            self.unanswered.append(on_delivery)
        return True


class Settler(SinkSettler):
    """A settler that records the failures of messages. Before the first one, a message of "good" is enqueued."""

    client: Tickwheel
    all_sinks: Sinks

    def fail(self, message: SinkMessage, reason: str) -> None:
        if not self.all_sinks.order:
            self.client.queue("good").enqueue()
        self.all_sinks.order.append("failed")
        super().fail(message, reason)


def test_a_message_is_sent_while_many_rejected_messages_fail(tickwheel_server: PrivateServer, namespace: str) -> None:
    sinks = Sinks()
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as client,
        sink_forwarders(SinkForwarder, client, tickwheel_server.url, sinks) as [forwarder],
    ):
        good = client.create_queue("good", sink="kafka://good")
        good.enqueue()
        for n in range(COUNT):
            client.create_queue(f"bad-{n}", sink=f"kafka://missing-{n}").enqueue(max_attempts=1)
        forwarder._settler = settler = Settler(forwarder._io, client._context, 0)
        settler.client, settler.all_sinks = client, sinks
        with running(forwarder):
            eventually(lambda: len(sinks.unanswered) == COUNT, "one message of each other sink is in flight")
            eventually(lambda: good.counts()["completed"] == 1, "the sink of the other queue is confirmed")
            sinks.order.clear()
            for on_delivery in sinks.unanswered:
                on_delivery(DeliveryStatus.REFUSED, "no such topic")
            eventually(lambda: sinks.order.count("failed") == COUNT, "all rejected messages fail")
        assert sinks.order.index("sent") <= 3 * REJECTED_AT_ONCE
        assert [client.queue(f"bad-{n}").counts()["errored"] for n in range(COUNT)] == [1] * COUNT
