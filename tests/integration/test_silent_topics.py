"""A topic that stops to answer delays no other sink, and costs its messages no attempt."""

import pytest

from tests.support.sink_forwarders import running, sink_forwarders
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.sinks.confirmed_sinks import MESSAGES
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


class Sinks:
    """The sinks of all queues. A sink acknowledges each message, until its queue is in ``silent``."""

    def __init__(self) -> None:
        self.unconfirmed_buffer = UnconfirmedBuffer(2**20)
        self.silent: set[str] = set()
        self.unanswered: list[DeliveryCallback] = []

    def sink(self, queue: str, url: str) -> "Sinks":
        return self

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        if message.queue in self.silent:
            self.unanswered.append(on_delivery)
        else:
            on_delivery(DeliveryStatus.ACKNOWLEDGED, "")
        return True


def test_topics_that_stop_to_answer_delay_no_other_sink(tickwheel_server: PrivateServer, namespace: str) -> None:
    sinks, names = Sinks(), ["one", "two", "three"]
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as client,
        sink_forwarders(SinkForwarder, client, tickwheel_server.url, sinks) as [forwarder],
        running(forwarder),
    ):
        queues = [client.create_queue(name, sink=f"kafka://{name}") for name in [*names, "other"]]
        for queue in queues:
            queue.enqueue()
            eventually(lambda queue=queue: queue.counts()["completed"] == 1, "the sink is confirmed")  # type: ignore[misc]
        sinks.silent |= {*names}
        for queue in queues[:3]:
            queue.enqueue_many(NewMessage() for _ in range(2 * MESSAGES))
        eventually(lambda: len(sinks.unanswered) > MESSAGES // 2, "the silent topics have their places")
        for count in (2, 3, 4):
            queues[-1].enqueue()
            eventually(lambda count=count: queues[-1].counts()["completed"] == count, "the other sink goes on")  # type: ignore[misc]
        assert len(sinks.unanswered) < MESSAGES


def test_the_messages_of_a_silent_topic_are_released_when_their_forwarder_ends(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    """The connection of a driver can break during an outage of Kafka: then a new forwarder replaces this one."""
    sinks = Sinks()
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as client,
        sink_forwarders(SinkForwarder, client, tickwheel_server.url, sinks) as [forwarder],
    ):
        queues = [client.create_queue(name, sink=f"kafka://{name}") for name in ("one", "two")]
        sinks.silent |= {"one", "two"}
        with running(forwarder):
            for queue in queues:
                queue.enqueue(id="m", max_attempts=1)
            eventually(lambda: len(sinks.unanswered) == 2, "the messages are in flight")
        for queue in queues:
            assert (queue.get("m").state, queue.get("m").attempt) == ("pending", 0)


@pytest.mark.parametrize("status", [DeliveryStatus.ACKNOWLEDGED, DeliveryStatus.REFUSED])
def test_a_damaged_record_in_flight_stops_no_sink(
    tickwheel_server: PrivateServer, namespace: str, status: DeliveryStatus
) -> None:
    sinks = Sinks()
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as client,
        tickwheel_server.client() as redis,
        sink_forwarders(SinkForwarder, client, tickwheel_server.url, sinks) as [forwarder],
        running(forwarder),
    ):
        damaged, other = (client.create_queue(name, sink=f"kafka://{name}") for name in ("damaged", "other"))
        damaged.enqueue()
        eventually(lambda: damaged.counts()["completed"] == 1, "the sink is confirmed")
        sinks.silent.add("damaged")
        damaged.enqueue_many(NewMessage(id=f"m{n}", max_attempts=1) for n in range(3))
        eventually(lambda: len(sinks.unanswered) == 3, "the messages are in flight")
        key = shard_key(namespace, 0, "messages")
        [field] = [name for name in redis.hkeys(key) if name.endswith(b"m1")]
        redis.hset(key, field, redis.hget(key, field)[:12])
        for on_delivery in sinks.unanswered:
            on_delivery(status, "rejected")
        other.enqueue()
        eventually(lambda: other.counts()["completed"] == 1, "the other sink goes on")
        state = "completed" if status is DeliveryStatus.ACKNOWLEDGED else "errored"
        assert {damaged.get(id).state for id in ("m0", "m2")} == {state}
