"""Replies are lost, connections cut, the server frozen in the middle of calls: each call is done once, and answered."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.fault.conditions import eventually
from tests.fault.faulty_server import FaultyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.told import path, told
from tickwheel import Message, Queue, Tickwheel, Unavailable, aio, sync_io
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NOW = timedelta(0)


@pytest.fixture
def proxy(tickwheel_server: PrivateServer) -> Iterator[FlakyProxy]:
    with FlakyProxy(str(tickwheel_server.folder / "valkey.sock"), seed=1) as proxy:
        yield proxy


@pytest.fixture
def shards() -> int:
    return 1


@pytest.fixture
def flaky(proxy: FlakyProxy, tickwheel_server: PrivateServer, shards: int) -> Iterator[Tickwheel]:
    """A client of a fresh namespace, through the proxy."""
    namespace = f"flaky-{os.urandom(4).hex()}"
    with Tickwheel(proxy.url, namespace=namespace, shards=shards, history="relay") as tickwheel:
        yield tickwheel
    tickwheel_server.clear(namespace)


@pytest.mark.parametrize("shards", [1, 4])
def test_lost_replies_duplicate_nothing(
    flaky: Tickwheel, proxy: FlakyProxy, tickwheel_server: PrivateServer, shards: int
) -> None:
    work = flaky.create_queue("work", exclusive_key="of", max_attempts=2)
    proxy.loses = 0.2
    for n in range(16):
        id, of = f"m{n}", str(n % 5)
        assert work.enqueue(b"x", id=id, delay=timedelta(hours=1), metadata={"of": of}).created
        assert work.reschedule(id, of, delay=NOW).changed
        message = the_one(work, id)
        lease_until = message.lease_until
        assert message.extend(timedelta(hours=1)) > lease_until
        assert message.fail(retry_in=NOW) == "pending"
        message = the_one(work, id)
        assert message.attempt == 2
        assert message.fail(retry_in=NOW) == "errored"
        assert work.redrive(id, of).changed
        message = the_one(work, id)
        assert message.attempt == 1
        if n % 2:
            message.complete()
        else:
            assert work.cancel(id, of, release=True).state == "cancelled"
    proxy.loses = 0.0
    assert proxy.lost > 30
    with tickwheel_server.client() as client:
        transitions = told(client, flaky._core.namespace, shards)
    for n in range(16):
        life = ["invisible", "pending", "running", "pending", "running", "errored", "pending", "running"]
        assert path(transitions, f"m{n}") == [*life, "completed" if n % 2 else "cancelled"]


def test_lost_replies_duplicate_nothing_for_tasks(proxy: FlakyProxy, tickwheel_server: PrivateServer) -> None:
    async def live(tickwheel: aio.Tickwheel, id: str) -> list[int]:
        work = tickwheel.queue("work")
        assert (await work.enqueue(b"x", id=id, metadata={"name": id})).created
        attempts = []
        for _ in range(2):
            [message] = await work.dequeue(where={"name": id})
            attempts.append(message.attempt)
            assert await message.extend(timedelta(hours=1)) > message.due
            if message.attempt == 1:
                assert await message.fail(retry_in=NOW) == "pending"
        await message.complete()
        return attempts

    async def live_together() -> list[list[int]]:
        async with aio.Tickwheel(proxy.url, namespace="flaky-tasks", history="relay") as tickwheel:
            proxy.loses = 0.2
            return await asyncio.gather(*(live(tickwheel, f"m{n}") for n in range(20)))

    try:
        assert asyncio.run(live_together()) == [[1, 2]] * 20
        with tickwheel_server.client() as client:
            transitions = told(client, "flaky-tasks")
        assert proxy.lost > 20
        for n in range(20):
            assert path(transitions, f"m{n}") == ["pending", "running", "pending", "running", "completed"]
    finally:
        tickwheel_server.clear("flaky-tasks")


def the_one(queue: Queue, id: str) -> Message:
    [message] = queue.dequeue(limit=10, worker="w")
    assert message.id == id
    return message


def test_redis_py_does_not_repeat_calls_by_itself(flaky: Tickwheel, proxy: FlakyProxy) -> None:
    work = flaky.create_queue("work")
    work.enqueue(b"before")
    namespace, timeout = flaky._core.namespace, timedelta(milliseconds=300)
    with Tickwheel(proxy.url, namespace=namespace, timeout=timeout) as impatient:
        impatient.queue("work").dequeue()
        proxy.loses_answer_to = b"only once"
        with pytest.raises(Unavailable) as raised:
            impatient.queue("work").enqueue(b"x", id="only once")
    sent = [request for request in proxy.requests if b"only once" in request]
    assert raised.value.may_have_happened
    # Sent as often as we say, no more: whoever repeats a call is the one who knows how to.
    assert f"{len(sent)} attempts" in str(raised.value)
    proxy.loses_answer_to = b""
    assert work.get("only once").version == 1


class Resent(logging.Handler):
    """Counts how often calls were given up, to be sent again."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "again in" in record.getMessage()


@pytest.fixture
def resent() -> Iterator[Resent]:
    handler = Resent()
    logging.getLogger("tickwheel").addHandler(handler)
    yield handler
    logging.getLogger("tickwheel").removeHandler(handler)


Action = Callable[[Queue, Message], Any]
CALLS: dict[str, tuple[Action, list[str]]] = {
    "enqueue": (lambda queue, _: queue.enqueue(b"new", id="new").created, ["pending"]),
    "dequeue": (lambda queue, _: [message.id for message in queue.dequeue(where={"of": "2"})], ["pending", "running"]),
    "complete": (lambda _, held: held.complete(), ["pending", "running", "completed"]),
    "fail": (lambda _, held: held.fail(retry_in=NOW), ["pending", "running", "pending"]),
    "extend": (lambda _, held: held.extend(timedelta(hours=1)) > held.due, ["pending", "running"]),
    "reschedule": (lambda queue, _: queue.reschedule("other", delay=NOW).changed, ["invisible", "pending"]),
    "redrive": (lambda queue, _: queue.redrive("errored").changed, ["pending", "running", "errored", "pending"]),
    "cancel": (lambda queue, _: queue.cancel("other").state, ["invisible", "cancelled"]),
}
OF = {"enqueue": "new", "dequeue": "next", "reschedule": "other", "cancel": "other", "redrive": "errored"}
ANSWERS = {"enqueue": True, "dequeue": ["next"], "complete": None, "fail": "pending", "cancel": "cancelled"}


def test_a_server_frozen_in_the_middle_of_calls_does_each_once(
    faulty: FaultyServer, resent: Resent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_io, "ANSWER_S", 0.05)
    for name, (call, states) in CALLS.items():
        with Tickwheel(faulty.url, namespace=f"frozen-{name}", history="relay") as tickwheel:
            work = tickwheel.create_queue("work")
            held = prepared(work)
            # A connection that does not introduce itself: so each copy of the call is sent, and lies there while the
            # server does not read.
            connection: Any = tickwheel._io._pool.get_connection()
            connection.driver_info = None
            tickwheel._io._pool.release(connection)
            with faulty.client() as client:
                ran = scripts_run(client)
            answers: list[Any] = []
            caller = threading.Thread(target=lambda: answers.append(call(work, held)))  # noqa: B023
            with faulty.frozen():
                before = resent.count
                caller.start()
                eventually(lambda: resent.count >= before + 4, "the call was sent again and again")  # noqa: B023
            caller.join(20)
            assert answers == [ANSWERS.get(name, True)], name
            with faulty.client() as client:
                transitions = told(client, tickwheel._core.namespace)
                # The fault was one: the server did get the call more than once.
                assert scripts_run(client) >= ran + 3, name
            assert path(transitions, OF.get(name, "held")) == states, name
            assert len(transitions) == (8 if name == "enqueue" else 7 + (name != "extend")), name


def scripts_run(client: Any) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def prepared(work: Queue) -> Message:
    """One message held, one errored, one next, one later."""
    work.enqueue(b"", id="held")
    [held] = work.dequeue()
    work.enqueue(b"", id="errored", max_attempts=1)
    work.dequeue()[0].fail()
    work.enqueue(b"", id="next", metadata={"of": "2"})
    work.enqueue(b"", id="other", delay=timedelta(hours=1))
    return held


def test_a_late_copy_of_an_older_call_is_refused(
    flaky: Tickwheel, proxy: FlakyProxy, tickwheel_server: PrivateServer
) -> None:
    work = flaky.create_queue("work")
    for n in range(4):
        work.enqueue(b"", id=f"m{n}")
    copies = []
    for _ in range(3):
        assert work.dequeue(worker="the-worker")
        copies.append(proxy.requests[-1])
    assert all(b"the-worker" in copy for copy in copies)
    socket_path = str(tickwheel_server.folder / "valkey.sock")
    assert sent_raw(socket_path, copies[0]).startswith(b"-SESSIONOLD")
    assert sent_raw(socket_path, copies[1]).startswith(b"-SESSIONOLD")
    # The newest is answered again, and not done again.
    assert b"m2" in sent_raw(socket_path, copies[2])
    assert work.counts()["running"] == 3


def test_a_late_copy_is_refused_when_its_session_has_expired(
    flaky: Tickwheel, proxy: FlakyProxy, tickwheel_server: PrivateServer
) -> None:
    work = flaky.create_queue("work")
    for n in range(4):
        work.enqueue(b"", id=f"m{n}")
    work.dequeue(worker="the-worker")
    work.dequeue(worker="the-worker")
    copy = proxy.requests[-1]
    with tickwheel_server.client() as client:
        [session] = client.keys(f"{flaky._core.namespace}:*session*")
        client.delete(session)
    assert sent_raw(str(tickwheel_server.folder / "valkey.sock"), copy).startswith(b"-SESSIONEXPIRED")
    assert work.counts()["running"] == 2
    # The client itself goes on under another name.
    assert work.dequeue()


def sent_raw(path: str, request: bytes) -> bytes:
    """The answer to a copy of a request, as a slow network might deliver it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(request)
        return connection.recv(65_536)
