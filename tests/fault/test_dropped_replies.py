"""Replies are lost, connections are cut, the server is frozen during calls: each call is executed once and answered."""

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
from tests.support.command_stats import calls_of
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
    """A client of a fresh namespace whose clock is at THEN. The client connects through the proxy."""
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
        message = dequeue_only(work, id)
        assert message.extend(HOUR) == THEN + HOUR
        assert message.fail(retry_in=NOW) == "pending"
        message = dequeue_only(work, id)
        assert message.attempt == 2
        assert message.fail(retry_in=NOW) == "errored"
        assert work.redrive(id, of) == Change(id, "pending", 7, THEN, changed=True)
        message = dequeue_only(work, id)
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


def test_lost_replies_duplicate_nothing_for_asyncio_tasks(proxy: FlakyProxy, tickwheel_server: PrivateServer) -> None:
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

    async def live_concurrently() -> list[list[int]]:
        async with aio.Tickwheel(proxy.url, namespace="flaky-tasks", history="relay") as tickwheel:
            proxy.loses = 0.2
            return await asyncio.gather(*(live(tickwheel, f"m{n}") for n in range(20)))

    try:
        assert asyncio.run(live_concurrently()) == [[1, 2]] * 20
        with tickwheel_server.client() as client:
            transitions = read_outbox(client, "flaky-tasks")
        assert proxy.lost > 20
        for n in range(20):
            assert states_of(transitions, f"m{n}") == ["pending", "running", "pending", "running", "completed"]
    finally:
        tickwheel_server.clear("flaky-tasks")


def dequeue_only(queue: Queue, id: str) -> Message:
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
    # The client sent the call as often as its error reports: redis-py has not repeated it.
    assert f"{len(sent)} attempts" in str(raised.value)
    proxy.loses_answer_to = b""
    assert work.get("only once").version == 1


class RetryCounter(logging.Handler):
    """Counts the log lines that announce a retry."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "retrying in" in record.getMessage()


@pytest.fixture
def retries() -> Iterator[RetryCounter]:
    handler = RetryCounter()
    logger = logging.getLogger("tickwheel")
    before = logger.level
    logger.addHandler(handler)
    # Most retries are logged at DEBUG. `setLevel` also clears the cache of the logger for that level.
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.mark.parametrize("name", CALLS)
def test_a_server_frozen_during_a_call_executes_the_call_once_and_replies(
    name: str, faulty: FaultyServer, retries: RetryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.05)
    call = CALLS[name]
    with (
        fixed_time_namespace(faulty.url, "undisturbed") as undisturbed,
        fixed_time_namespace(faulty.url, "frozen") as on,
    ):
        expected = answer(call, undisturbed)
        # Without `driver_info`, a new connection does not send CLIENT SETINFO first, which would wait for a reply. So
        # the client sends each copy of the call, and the copy stays in the socket until the server runs again.
        connection: Any = on.tickwheel._io._servers.pool(SINGLE).get_connection()
        connection.driver_info = None
        on.tickwheel._io._servers.pool(SINGLE).release(connection)
        with faulty.client() as client, ThreadPoolExecutor() as threads:
            scripts_before = count_scripts(client)
            with faulty.paused():
                before = retries.count
                answered = threads.submit(answer, call, on)
                eventually(lambda: retries.count >= before + 4, "the call was sent repeatedly")
            assert answered.result(20) == expected
            # The fault was effective: the server received the call more than once. Calls that change a queue, and a
            # purge, are an exception: they read the configuration first.
            assert (
                call.script in ("create_queue", "update_queue", "purge") or count_scripts(client) >= scripts_before + 3
            )
            assert read_outbox(client, "frozen") == read_outbox(client, "undisturbed")


def test_a_call_in_progress_ends_when_its_client_is_closed_and_may_have_happened(
    faulty: FaultyServer, retries: RetryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.05)
    with Tickwheel(faulty.url) as tickwheel, ThreadPoolExecutor() as threads, faulty.paused():
        queue = tickwheel.queue("q")
        in_progress = threads.submit(queue.enqueue, id="m")
        eventually(lambda: retries.count >= 2, "the call was sent")
        tickwheel.close()
        with pytest.raises(Unavailable, match="was closed before the call had its answer") as raised:
            in_progress.result(timeout=20)
        assert raised.value.may_have_happened


@contextmanager
def fixed_time_namespace(url: str, namespace: str) -> Iterator[PreparedNamespace]:
    """Prepare a namespace for every call, with a clock that stands still."""
    with Tickwheel(url, namespace=namespace, history="relay", clock=FRAGMENT) as tickwheel:
        VirtualClock(url, namespace, THEN).close()
        yield prepare_namespace(tickwheel)


def count_scripts(client: Any) -> int:
    return calls_of(client, "evalsha")


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
    assert send_raw(socket_path, copies[0]).startswith(b"-SESSIONOLD")
    assert send_raw(socket_path, copies[1]).startswith(b"-SESSIONOLD")
    # The newest call gets its stored answer and is not executed again.
    assert b"m2" in send_raw(socket_path, copies[2])
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
    assert send_raw(str(tickwheel_server.folder / "valkey.sock"), copy).startswith(b"-SESSIONEXPIRED")
    assert work.counts()["running"] == 2
    # The client continues with a new session.
    assert work.dequeue()


def send_raw(path: str, request: bytes) -> bytes:
    """Send a copy of a request, like a slow network that delivers it late, and return the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(request)
        return connection.recv(65_536)


def test_a_batch_may_have_happened_if_its_first_part_was_executed_and_its_second_part_never_sent(
    faulty: FaultyServer,
) -> None:
    with Tickwheel(faulty.url, drive=False, timeout=timedelta(milliseconds=300)) as tickwheel:

        def messages() -> Iterator[NewMessage]:
            for n in range(300):
                if n == 270:
                    # The first 250 messages are enqueued. The rest finds no connection, old or new.
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
