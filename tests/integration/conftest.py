"""Integration tests that use a namespace run three times: on one shard, on four, and with the asyncio client."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.blocking_aio import aio_sandbox
from tickwheel import Message, Queue, Tickwheel, transitions
from tickwheel.keys import shard_key
from tickwheel.routing import shard_of
from tickwheel.testing import PrivateServer, VirtualClock, sandbox
from tickwheel.transitions import Transition


@pytest.fixture(params=["1-shard", "4-shards", "asyncio"])
def _tickwheel_sandbox(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer
) -> Iterator[tuple[Tickwheel, VirtualClock]]:
    marker = request.node.get_closest_marker("tickwheel")
    settings = {"shards": 1 if request.param == "1-shard" else 4} | (marker.kwargs if marker else {})
    open_one = aio_sandbox if request.param == "asyncio" else sandbox
    with open_one(tickwheel_server, **settings) as found:
        yield found


@pytest.fixture
def bring() -> Callable[..., Message | None]:
    """Enqueues a message, the only one that is Pending then, and brings it to a state; the lease, where it had one."""

    def bring_to(state: str, queue: Queue, id: str = "m", **given: Any) -> Message | None:
        if state == "invisible":
            given["delay"] = timedelta(hours=1)
        if state == "errored":
            given["max_attempts"] = 1
        queue.enqueue(b"payload", id=id, **given)
        message = None
        if state in ("running", "completed", "errored"):
            [message] = queue.dequeue(worker="worker 1")
        if message is not None and state == "completed":
            message.complete()
        if message is not None and state == "errored":
            message.fail("boom")
        if state == "cancelled":
            queue.cancel(id, given["metadata"]["of"] if queue.config().exclusive_key else None)
        return message

    return bring_to


@pytest.fixture
def history(tw: Tickwheel, server: Any) -> Callable[[str], list[Transition]]:
    """Reads the transitions of the messages of an id, in the order they happened."""

    def of_id(id: str) -> list[Transition]:
        keys = [shard_key(tw._core.namespace, shard, "events") for shard in range(tw._core.shards)]
        entries = [fields[b"e"] for key in keys for _, fields in server.xrange(key)]
        return [transition for entry in entries for transition in transitions.decode(entry) if transition.id == id]

    return of_id


@pytest.fixture
def neighbours(tw: Tickwheel) -> Callable[[str, int], list[str]]:
    """Makes ids (or exclusive values) of a queue that are routed to one shard, in the order of their names."""

    def of_queue(queue: str, count: int) -> list[str]:
        names = (f"m{n:04}" for n in range(10_000))
        return [name for name in names if shard_of(queue, name.encode(), tw._core.shards) == 0][:count]

    return of_queue
