"""Replies are lost, connections cut, the server frozen in the middle of calls: each call is done once, and answered."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.mutating_calls import CALLS, HOUR, NOW, PreparedNamespace, answer, prepare_namespace
from tests.support.outbox import read_outbox, states_of
from tests.support.wait_until import eventually
from tickwheel import Change, EnqueueResult, Message, NewMessage, Queue, Tickwheel, Unavailable, aio
from tickwheel.redis import pools
from tickwheel.redis.topology import SINGLE
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.fault

THEN = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
def shards() -> int:
    return 1


@pytest.fixture
def flaky(proxy: FlakyProxy, tickwheel_server: PrivateServer, namespace: str, shards: int) -> Iterator[Tickwheel]:
    """A client of a fresh namespace, where it is THEN, through the proxy."""
    with Tickwheel(proxy.url, namespace=namespace, shards=shards, history="relay", clock=FRAGMENT) as tickwheel:
        VirtualClock(tickwheel_server.url, namespace, THEN).close()
        yield tickwheel


@pytest.mark.parametrize("shards", [1, 4])
def test_lost_replies_duplicate_nothing(
    flaky: Tickwheel, proxy: FlakyProxy, tickwheel_server: PrivateServer, shards: int
) -> None:
    work = flaky.create_queue("work", exclusive_key="of", max_attempts=2)
    proxy.loses = 0.2
    for n in range(16):
        id, of = f"m{n}", str(n % 5)
        added = work.enqueue(b"x", id=id, delay=HOUR, metadata={"of": of})
        assert added == EnqueueResult(id, "invisible", created=True)
        assert work.reschedule(id, of, delay=NOW) == Change(id, "pending", 2, THEN, changed=True)
        message = the_one(work, id)
        assert message.extend(HOUR) == THEN + HOUR
        assert message.fail(retry_in=NOW) == "pending"
        message = the_one(work, id)
        assert message.attempt == 2
        assert message.fail(retry_in=NOW) == "errored"
        assert work.redrive(id, of) == Change(id, "pending", 7, THEN, changed=True)
        message = the_one(work, id)
        assert message.attempt == 1
        if n % 2:
            message.complete()
        else:
            kept_until = THEN + timedelta(minutes=10)
            assert work.cancel(id, of, release=True) == Change(id, "cancelled", 9, kept_until, changed=True)
    proxy.loses = 0.0
    assert proxy.lost > 30
    with tickwheel_server.client() as client:
        transitions = read_outbox(client, flaky._context.namespace, shards)
    for n in range(16):
        life = ["invisible", "pending", "running", "pending", "running", "errored", "pending", "running"]
        assert states_of(transitions, f"m{n}") == [*life, "completed" if n % 2 else "cancelled"]


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
            transitions = read_outbox(client, "flaky-tasks")
        assert proxy.lost > 20
        for n in range(20):
            assert states_of(transitions, f"m{n}") == ["pending", "running", "pending", "running", "completed"]
    finally:
        tickwheel_server.clear("flaky-tasks")


def the_one(queue: Queue, id: str) -> Message:
    [message] = queue.dequeue(limit=10, worker="w")
    assert message.id == id
    return message


def test_redis_py_does_not_repeat_calls(flaky: Tickwheel, proxy: FlakyProxy) -> None:
    work = flaky.create_queue("work")
    work.enqueue(b"before")
    namespace, timeout = flaky._context.namespace, timedelta(milliseconds=300)
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
        self.count += "retrying in" in record.getMessage()


@pytest.fixture
def resent() -> Iterator[Resent]:
    handler = Resent()
    logger = logging.getLogger("tickwheel")
    before = logger.level
    logger.addHandler(handler)
    # Most are told at DEBUG; `setLevel` forgets what the logger has found out about that level.
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.mark.parametrize("name", CALLS)
def test_a_server_frozen_during_a_call_executes_the_call_once_and_replies(
    name: str, faulty: FaultyServer, resent: Resent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.05)
    call = CALLS[name]
    with stopped(faulty.url, "undisturbed") as undisturbed, stopped(faulty.url, "frozen") as on:
        expected = answer(call, undisturbed)
        # A connection that does not introduce itself: so each copy of the call is sent, and lies there while the
        # server does not read.
        connection: Any = on.tickwheel._io._servers.pool(SINGLE).get_connection()
        connection.driver_info = None
        on.tickwheel._io._servers.pool(SINGLE).release(connection)
        with faulty.client() as client, ThreadPoolExecutor() as threads:
            ran = scripts_run(client)
            with faulty.paused():
                before = resent.count
                answered = threads.submit(answer, call, on)
                eventually(lambda: resent.count >= before + 4, "the call was sent again and again")
            assert answered.result(20) == expected
            # The fault was one: the server did get the call more than once. A configuration is read before it is set.
            assert call.script in ("create_queue", "update_queue") or scripts_run(client) >= ran + 3
            assert read_outbox(client, "frozen") == read_outbox(client, "undisturbed")


def test_a_call_in_progress_ends_when_its_client_is_closed_and_may_have_happened(
    faulty: FaultyServer, resent: Resent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.05)
    with Tickwheel(faulty.url) as tickwheel, ThreadPoolExecutor() as threads, faulty.paused():
        queue = tickwheel.queue("q")
        under_way = threads.submit(queue.enqueue, id="m")
        eventually(lambda: resent.count >= 2, "it was sent")
        tickwheel.close()
        with pytest.raises(Unavailable, match="was closed before the call had its answer") as raised:
            under_way.result(timeout=20)
        assert raised.value.may_have_happened


@contextmanager
def stopped(url: str, namespace: str) -> Iterator[PreparedNamespace]:
    """A namespace that is prepared for every call, and whose time stands still."""
    with Tickwheel(url, namespace=namespace, history="relay", clock=FRAGMENT) as tickwheel:
        VirtualClock(url, namespace, THEN).close()
        yield prepare_namespace(tickwheel)


def scripts_run(client: Any) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


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
        [session] = client.keys(f"{flaky._context.namespace}:*session*")
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


def test_a_batch_with_one_part_executed_may_have_happened_though_the_second_part_was_never_sent(
    faulty: FaultyServer,
) -> None:
    with Tickwheel(faulty.url, drive=False, timeout=timedelta(milliseconds=300)) as tickwheel:

        def messages() -> Iterator[NewMessage]:
            for n in range(300):
                if n == 270:
                    # By now the first 250 are in. The rest finds no connection, old or new.
                    faulty.kill()
                    tickwheel._io._servers.pool(SINGLE).disconnect()
                yield NewMessage(id=f"m{n}")

        with pytest.raises(Unavailable) as raised:
            tickwheel.create_queue("work").enqueue_many(messages())
        assert raised.value.may_have_happened
        with pytest.raises(Unavailable) as raised:
            tickwheel.queue("work").enqueue(id="alone")
        assert not raised.value.may_have_happened
        faulty.start()
        assert tickwheel.queue("work").counts()["pending"] == 250
