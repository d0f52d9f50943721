"""A program that does not drive because of the sink of a queue drives soon after the queue has no sink."""

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event
from typing import Any

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.client import last_resort, sink_watch
from tickwheel.client.admin import Admin
from tickwheel.client.last_resort import LastResort, LastResortOptions
from tickwheel.client.settings import ClientSettings
from tickwheel.client.sink_watch import SinkWatch
from tickwheel.kafka.options import KafkaOptions
from tickwheel.model.served_topics import ServedTopics
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

QUEUE = "forwarded"
End = Callable[[Tickwheel], object]
ENDS: dict[str, End] = {
    "its sink is removed": lambda client: client.create_queue(QUEUE, update=True, sink=""),
    "it is deleted": lambda client: client.delete_queue(QUEUE),
}


@pytest.fixture
def client(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    """A client of a namespace with a queue that has a sink."""
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=2) as client:
        client.create_queue(QUEUE, sink="kafka://topic")
        yield client


def listeners(server: Any, namespace: str) -> int:
    [_, count] = server.execute_command("PUBSUB", "SHARDNUMSUB", shard_key(namespace, 0, "adopted"))
    return int(count)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_program_drives_soon_after_the_queue_has_no_sink(
    client: Tickwheel, monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    # Without the watch, the program would not check again during the test.
    monkeypatch.setattr(last_resort, "CHECK_BACKOFF_S", (600.0, 600.0))
    program = LastResort(Admin(client).settings, LastResortOptions(is_demanded=True))
    program.start()
    try:
        assert not program.may_drive(20.0)
        end(client)
        eventually(lambda: program.pid is not None, "the program drives")
    finally:
        program.stop()


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_only_the_end_of_the_sink_ends_the_watch(
    client: Tickwheel, server: Any, namespace: str, monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    monkeypatch.setattr(sink_watch, "_JITTER_S", 0.01)
    monkeypatch.setattr(sink_watch, "_AGAIN_S", 0.01)
    has_ended = Event()
    with closing(SinkWatch(Admin(client).settings, QUEUE, None, has_ended.set)) as watch:
        watch.start()
        eventually(lambda: listeners(server, namespace), "the watch listens")
        client.create_queue("other")
        client.create_queue(QUEUE, update=True, max_attempts=7)
        assert not has_ended.is_set()
        end(client)
        assert has_ended.wait(20)
    eventually(lambda: not listeners(server, namespace), "the connection is closed")


def test_a_sink_that_the_program_serves_ends_the_watch(client: Tickwheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_watch, "_JITTER_S", 0.01)
    has_ended = Event()
    topics = ServedTopics("transitions", ("mail.*",))
    with closing(SinkWatch(Admin(client).settings, QUEUE, topics, has_ended.set)) as watch:
        watch.start()
        client.create_queue(QUEUE, update=True, sink="kafka://mail.sent")
        assert has_ended.wait(20)


def test_a_program_with_kafka_does_not_drive_while_a_sink_has_a_topic_that_it_does_not_serve(client: Tickwheel) -> None:
    kafka = KafkaOptions("127.0.0.1:1", "t", sink_topics=("mail.*",))
    program = LastResort(Admin(client).settings, LastResortOptions(kafka, is_demanded=True))
    program.start()
    try:
        assert not program.may_drive(20.0)
        assert program._obstacle is not None
        assert "no pattern of --sink-topics permits the topic topic" in program._obstacle.text
    finally:
        program.stop()


def test_an_end_before_the_subscription_is_noticed(client: Tickwheel) -> None:
    client.delete_queue(QUEUE)
    has_ended = Event()
    with closing(SinkWatch(Admin(client).settings, QUEUE, None, has_ended.set)) as watch:
        watch.start()
        assert has_ended.wait(20)


def test_a_lost_connection_is_replaced(
    client: Tickwheel, server: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_watch, "_BACKOFF_S", (0.01, 0.01))
    monkeypatch.setattr(sink_watch, "_JITTER_S", 0.01)
    has_ended = Event()
    with closing(SinkWatch(Admin(client).settings, QUEUE, None, has_ended.set)) as watch:
        watch.start()
        eventually(lambda: listeners(server, namespace), "the watch listens")
        server.client_kill_filter(_type="pubsub")
        eventually(lambda: listeners(server, namespace), "the watch listens again")
        client.create_queue(QUEUE, update=True, sink="")
        assert has_ended.wait(20)


def test_a_watch_ends_although_its_server_does_not_answer() -> None:
    settings = ClientSettings.validate("redis://127.0.0.1:1", "tw", None, "memory", False, None)
    with closing(SinkWatch(settings, QUEUE, None, lambda: None)) as watch:
        watch.start()
