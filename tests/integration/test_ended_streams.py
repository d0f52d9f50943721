"""A stream of a shard that accepts no further entry: calls change nothing, and the event process begins a new inbox."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Message, NewMessage, Queue, Tickwheel, TickwheelError
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.storage.keys import shard_key
from tickwheel.storage.stream_id import HIGHEST_ID
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

Bring = Callable[..., Message | None]
Contents = Callable[[str], dict[str, Any]]
MS, SECOND, HOUR = timedelta(milliseconds=1), timedelta(seconds=1), timedelta(hours=1)
LARGE = b"x" * 5_000


def value_of_m(queue: Queue) -> str | None:
    """Return the exclusive value of the message "m"."""
    return "a" if queue.config().exclusive_key else None


def complete(_: Queue, message: Message | None) -> None:
    assert message is not None
    message.complete()


# Each call writes to the inbox. A body of more than 1 KiB is stored before the script runs.
CALLS: dict[str, tuple[str, Callable[[Queue, Message | None], object]]] = {
    "enqueue": ("completed", lambda queue, _: queue.enqueue(LARGE, id="new", delay=HOUR, metadata={"of": "b"})),
    "enqueue of a batch": (
        "completed",
        lambda queue, _: queue.enqueue_many(
            NewMessage(LARGE, id=f"new{n}", delay=n * HOUR, metadata={"of": "b"}) for n in range(2)
        ),
    ),
    "dequeue": ("pending", lambda queue, _: queue.dequeue()),
    "dequeue with a filter": ("pending", lambda queue, _: queue.dequeue(where={"of": "a"})),
    "complete": ("running", complete),
    "fail": ("running", lambda _, message: message and message.fail("wrong", final=True)),
    "cancel": ("pending", lambda queue, _: queue.cancel("m", value_of_m(queue))),
    "reschedule": ("invisible", lambda queue, _: queue.reschedule("m", value_of_m(queue), delay=2 * HOUR)),
    "reschedule to now": ("invisible", lambda queue, _: queue.reschedule("m", value_of_m(queue), delay=MS * 0)),
    "reschedule of a ready message": ("pending", lambda queue, _: queue.reschedule("m", value_of_m(queue), delay=HOUR)),
}


def end_stream(server: Any, namespace: str, stream: str) -> None:
    """Add an entry with the highest possible id, as a user of Redis can who may write to the stream."""
    server.xadd(shard_key(namespace, 0, stream), {"t": b"\xff"}, id=HIGHEST_ID)


@pytest.mark.parametrize("stream", ["inbox", "events"])
@pytest.mark.parametrize("exclusive_key", [None, "of"], ids=["plain", "exclusive"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_a_stream_refuses_changes_no_message(
    tickwheel_server: PrivateServer, namespace: str, server: Any, contents: Contents, bring: Bring, call: str,
    exclusive_key: str | None, stream: str,
) -> None:  # fmt: skip
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q", exclusive_key=exclusive_key)
        state, act = CALLS[call]
        message = bring(state, queue, "m", metadata={"of": "a"})
        end_stream(server, namespace, stream)
        before = contents(namespace)
        # An inbox to which the first entry was not added may be left empty.
        before.setdefault(shard_key(namespace, 0, "inbox"), [])
        for _ in range(2):
            with pytest.raises(TickwheelError, match=r"accepts no further entry.*Nothing was changed"):
                act(queue, message)
        assert {shard_key(namespace, 0, "inbox"): []} | contents(namespace) == before


@pytest.mark.parametrize("starts", ["before", "after"])
def test_an_event_process_begins_a_new_inbox_and_loses_no_timer(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, starts: str
) -> None:
    def is_enqueued(queue: Queue, id: str) -> bool:
        try:
            return queue.enqueue(id=id, delay=MS).id == id
        except TickwheelError:
            return False

    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel, ExitStack() as stack:
        queue = tickwheel.create_queue("q")
        if starts == "before":
            stack.enter_context(run_event_process(tickwheel_server.url, namespace, tmp_path / "lock"))
            queue.enqueue(id="first", delay=MS)
            [first] = queue.dequeue(wait=10 * SECOND)
            first.complete()
        queue.enqueue_many(NewMessage(id=f"old{n}", delay=n * SECOND) for n in range(1, 5))
        end_stream(server, namespace, "inbox")
        if starts == "after":
            stack.enter_context(run_event_process(tickwheel_server.url, namespace, tmp_path / "lock"))
        for n in range(3):
            eventually(partial(is_enqueued, queue, f"new{n}"), "the inbox accepts entries")
        left = {f"old{n}" for n in range(1, 5)} | {f"new{n}" for n in range(3)}
        while left:
            [message] = queue.dequeue(wait=20 * SECOND)
            left.remove(message.id)
            message.complete()
        eventually(lambda: not server.xlen(shard_key(namespace, 0, "inbox")), "the inbox is filed")
        assert tickwheel._run(audit(tickwheel._context, passes=LIVE_PASSES)) == []


def test_no_lease_timer_is_lost_while_a_stream_refuses_the_end_of_the_lease(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused call leaves no timer: the event process would conclude from the timer that the lease is over."""
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        run_event_process(tickwheel_server.url, namespace, tmp_path / "lock"),
    ):
        queue = tickwheel.create_queue("q", lease=SECOND, max_attempts=1)
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(2))
        messages = queue.dequeue(limit=2)
        end_stream(server, namespace, "events")
        with pytest.raises(TickwheelError, match="accepts no further entry"):
            messages[0].fail("wrong")
        eventually(lambda: "was rejected" in caplog.text, "the end of the leases is refused")
        server.unlink(shard_key(namespace, 0, "events"))
        eventually(lambda: queue.counts()["errored"] == 2, "both leases end")
