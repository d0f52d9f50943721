"""An event process of the earlier version drives a namespace in which the present client deletes a queue."""

from datetime import timedelta
from pathlib import Path

import pytest

from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tests.upgrade.mixed_deployment import Component
from tickwheel import NewMessage, Tickwheel
from tickwheel.doctor import LIVE_PASSES, audit

pytestmark = pytest.mark.fault

COUNT = 200
SHARDS = 2
DELAY = timedelta(seconds=6)
# Long enough for a loaded machine. The timers of the deleted queue are due at the same time.
LATE = timedelta(seconds=10)


def test_an_event_process_of_the_earlier_version_serves_the_queue_that_replaces_a_deleted_queue(
    earlier: str, tmp_path: Path
) -> None:
    with ValkeyServer("valkey", tmp_path, {"appendonly": "no"}) as server:
        url = {"TICKWHEEL_URL": server.url}
        events = Component("events", ("-m", "tickwheel", "events"), tmp_path / "events", url, ready="")
        with Tickwheel(server.url, shards=SHARDS, drive=False) as client:
            events.start(earlier)
            try:
                replace_a_queue(client)
                assert client._run(audit(client._context, passes=LIVE_PASSES)) == []
                events.stop()
            finally:
                events.process.kill()
        log = "\n".join(events.lines)
        assert log.count("elected") == SHARDS, log
        assert not [line for line in events.lines if "ERROR" in line or "Traceback" in line], log


def replace_a_queue(client: Tickwheel) -> None:
    """Delete a queue whose delayed messages are on the wheel. A queue of the same name gets messages with their ids."""
    ids = [f"m{n}" for n in range(COUNT)]
    first = client.queue("first")
    first.enqueue(delay=timedelta(milliseconds=1))
    assert len(first.dequeue(wait=LATE)) == 1, "the event process drives the shards"
    deleted = client.create_queue("jobs")
    number = deleted.config().number
    deleted.enqueue_many(NewMessage(b"deleted", id_, DELAY) for id_ in ids)
    assert client.delete_queue("jobs", purge=True) == COUNT

    queue = client.create_queue("jobs")
    assert queue.config().number != number
    queue.enqueue_many(NewMessage(b"new", id_, DELAY) for id_ in ids)
    assert queue.dequeue() == []
    delivered: dict[str, timedelta] = {}

    def receive() -> bool:
        for message in queue.dequeue(COUNT, wait=timedelta(milliseconds=200)):
            assert message.payload == b"new"
            assert message.id not in delivered
            delivered[message.id] = message.lease_until - timedelta(milliseconds=queue.config().lease_ms) - message.due
            message.complete()
        return len(delivered) == COUNT

    eventually(receive, "the messages of the new queue are delivered", (DELAY + LATE).total_seconds())
    assert min(delivered.values()) >= timedelta(0)
