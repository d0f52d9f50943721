"""Many clients, slow clients, and clients that vanish: the resources of each are bounded and are released."""

import asyncio
import multiprocessing
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.process import Process
from services.serving_program import SERVE, ServingProgram
from tests.integration.service_thread import ServiceThread
from tests.security.http2 import PREFACE, frame, headers, message, unlimited_windows
from tests.security.silenceable_proxy import SilenceableProxy
from tests.security.tokens import generic_client
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.rpc.methods import METHODS
from tickwheel.service import grpc_options
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

CONNECTIONS, QUEUES = 2_000, 50
MIB = 1_024
# A separate connection for each channel.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
FOREVER = threading.Event()


@pytest.fixture
def jobs(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct:
        yield direct.create_queue("jobs", lease=timedelta(minutes=5))


def requests(*first: dict[str, Any]) -> Any:
    """Return a stream of requests that never ends."""
    return chain(first, iter(FOREVER.wait, None))


async def parked(channel: Any, namespace: str, queue: str) -> list[str]:
    method = METHODS["Dequeue"]
    call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
    response = await call(method.request(namespace=namespace, queue=queue, wait_ms=60_000), timeout=70)
    return [delivery.lease.id for delivery in response.deliveries]


@pytest.mark.timeout(120)
def test_two_thousand_connections_of_which_half_wait_are_answered_and_the_service_stays_healthy(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip(f"this system allows a process {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))

    async def program(service: ServingProgram, direct: Tickwheel) -> None:
        for n in range(QUEUES):
            await asyncio.to_thread(direct.create_queue, f"q{n}")
        before = rss_kb(service)
        channels = [grpc.aio.insecure_channel(service.target, options=OWN_CONNECTION) for _ in range(CONNECTIONS)]
        try:
            for first in range(0, CONNECTIONS, 100):
                await asyncio.gather(*(channel.channel_ready() for channel in channels[first : first + 100]))
            connected = rss_kb(service)
            waiting = [
                asyncio.create_task(parked(channel, namespace, f"q{n % QUEUES}"))
                for n, channel in enumerate(channels[: CONNECTIONS // 2])
            ]
            # A queue is subscribed to while a call waits for it.
            await eventually_in_task(lambda: subscribed(tickwheel_server, namespace) == QUEUES, "the calls wait")
            loop = asyncio.get_running_loop()
            per_queue = CONNECTIONS // 2 // QUEUES
            for n in range(QUEUES):
                new = [NewMessage(b"x", id=f"{n}-{k}") for k in range(per_queue)]
                await loop.run_in_executor(None, direct.queue(f"q{n}").enqueue_many, new)
            ids = [id_ for [id_] in await asyncio.gather(*waiting)]
            assert len(set(ids)) == CONNECTIONS // 2
            answered = rss_kb(service)
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))
        print(f"KiB for each connection: {(connected - before) / CONNECTIONS:.1f}")
        print(f"KiB more for each waiting call: {(answered - connected) / (CONNECTIONS // 2):.1f}")
        assert (connected - before) / CONNECTIONS < 100
        assert (answered - before) / CONNECTIONS < 200

    with (
        ServingProgram(tmp_path, *SERVE, tickwheel_server.url) as service,
        Tickwheel(tickwheel_server.url, namespace=namespace, shards=4, drive=False) as direct,
    ):
        asyncio.run(program(service, direct))
        with Tickwheel(service.url, namespace=namespace) as client:
            assert sum(client.queue(f"q{n}").counts()["running"] for n in range(QUEUES)) == CONNECTIONS // 2
        assert service.is_running


def rss_kb(process: Process) -> int:
    """Return the memory of a process in KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def subscribed(server: PrivateServer, namespace: str) -> int:
    with server.client() as client:
        channels = client.execute_command("PUBSUB", "SHARDCHANNELS", f"{namespace}:{{0}}:q:*:wake")
        return len(channels)


@pytest.mark.timeout(120)
def test_clients_that_never_read_make_the_service_buffer_at_most_one_response_each(
    tickwheel_server: PrivateServer, jobs: Queue, namespace: str, tmp_path: Path
) -> None:
    streams, per_stream = 4, 350
    jobs.enqueue_many(NewMessage(bytes(30_000)) for _ in range(streams * per_stream))
    request = METHODS["DequeueStream"].request(namespace=namespace, queue="jobs", credit=1_000)
    # The clients open their flow-control windows fully, but never read from the socket.
    sent = PREFACE + unlimited_windows() + frame(1, 4, 1, headers("DequeueStream")) + frame(0, 0, 1, message(request))
    with (
        ServingProgram(tmp_path, *SERVE, tickwheel_server.url) as service,
        grpc.insecure_channel(service.target) as channel,
        ExitStack() as stack,
    ):
        anonymous, here = generic_client(channel, ""), {"namespace": namespace, "queue": "jobs"}
        anonymous.call("GetCounts", **here)
        before = rss_kb(service)
        host, _, port = service.target.rpartition(":")
        for _ in range(streams):
            unread = stack.enter_context(socket.socket())
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            unread.connect((host, int(port)))
            unread.sendall(sent)
        counts = [0]

        def delivers_no_more() -> bool:
            counts.append(jobs.counts()["running"])
            return len(counts) > 20 and counts[-1] == counts[-20] > 0

        eventually(delivers_no_more, "the service delivers no more", within=60, pause=0.05)
        kib = rss_kb(service) - before
        print(
            f"MiB held for each client: {kib / streams / MIB:.1f}, delivered to each client: {counts[-1] / streams:.0f}"
        )
        # A response has 3 MB. One is being written, one may be in the system's buffers, and both are copied.
        assert counts[-1] <= streams * 200
        assert kib / streams < 25 * MIB
        # The service serves other clients at the same time.
        jobs.enqueue(b"x", id="last", deadline=timedelta(days=-1))
        assert [taken["lease"]["id"] for taken in anonymous.call("Dequeue", **here)["deliveries"]] == ["last"]


def test_of_an_endless_stream_of_batches_the_service_buffers_at_most_one_batch(
    tickwheel_server: PrivateServer, jobs: Queue, namespace: str, tmp_path: Path
) -> None:
    batches = 25
    request = {"namespace": namespace, "queue": "jobs"}
    sent = threading.Event()

    def without_end() -> Iterator[dict[str, Any]]:
        payload = "A" * 40_000
        for n in range(batches):
            yield request | {"messages": [{"id": f"{n}-{k}", "payload": payload} for k in range(40)]}
        sent.set()
        FOREVER.wait()

    with (
        ServingProgram(tmp_path, *SERVE, tickwheel_server.url) as service,
        grpc.insecure_channel(service.target) as channel,
    ):
        anonymous = generic_client(channel, "")
        anonymous.call("GetCounts", **request)
        before = rss_kb(service)
        threading.Thread(target=lambda: _refused(anonymous, without_end()), daemon=True).start()
        eventually(lambda: jobs.counts()["pending"] == batches * 40, "all messages are enqueued", within=60, pause=0.05)
        kib = rss_kb(service) - before
        print(f"MiB held: {kib / MIB:.1f}")
        # The service has received 30 MB.
        assert kib < 20 * MIB


def _refused(anonymous: Any, requests: Iterator[dict[str, Any]]) -> None:
    with pytest.raises(grpc.RpcError):
        anonymous.send_many("EnqueueStream", requests, 60)


def _hold_streams_open(target: str, namespace: str, streams: int, ready: Any) -> None:
    channel = grpc.insecure_channel(target)
    anonymous, request = generic_client(channel, ""), {"namespace": namespace, "queue": "jobs"}
    opened = [anonymous.stream("DequeueStream", requests(request | {"credit": 1}), timeout=300) for _ in range(streams)]
    for stream in opened:
        next(iter(stream))
    ready.set()
    FOREVER.wait()


def test_messages_of_a_killed_client_are_delivered_again(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    streams = 5
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=True) as direct,
        ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--max-waiting", str(streams)) as service,
        grpc.insecure_channel(service.target) as channel,
    ):
        jobs = direct.create_queue("jobs", lease=timedelta(seconds=1), max_attempts=9)
        jobs.enqueue_many(NewMessage(b"x", id=f"m{n}") for n in range(streams))
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        client = context.Process(
            target=_hold_streams_open, args=(service.target, namespace, streams, ready), daemon=True
        )
        client.start()
        assert ready.wait(60)
        anonymous, request = generic_client(channel, ""), {"namespace": namespace, "queue": "jobs"}
        with pytest.raises(grpc.RpcError) as refused:
            anonymous.call("Dequeue", **request, wait_ms=1)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        # The slots of the waiting calls are free immediately, the messages after their leases.
        eventually(lambda: _is_accepted(anonymous, request), "a waiting call is accepted")
        ids: set[str] = set()
        with Tickwheel(service.url, namespace=namespace) as python:
            while len(ids) < streams:
                ids |= {message.id for message in python.queue("jobs").dequeue(limit=9, wait=timedelta(seconds=20))}
        client.join()


def _is_accepted(anonymous: Any, request: dict[str, Any]) -> bool:
    try:
        anonymous.call("Dequeue", **request | {"queue": "empty"}, wait_ms=1)
    except grpc.RpcError:
        return False
    return True


def test_a_client_whose_network_fails_silently_is_disconnected(
    tickwheel_server: PrivateServer, jobs: Queue, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_options, "PING_MS", 1_000)
    monkeypatch.setattr(grpc_options, "PONG_MS", 500)
    jobs.enqueue(b"x")
    with ServiceThread(tickwheel_server.url, waiting=1) as service, SilenceableProxy(service.target) as cut:
        request = {"namespace": namespace, "queue": "jobs"}
        with (
            grpc.insecure_channel(cut.target, options=OWN_CONNECTION) as gone,
            grpc.insecure_channel(service.target) as channel,
        ):
            stream = generic_client(gone, "").stream("DequeueStream", requests(request | {"credit": 1}), timeout=60)
            assert next(iter(stream))["deliveries"]
            anonymous = generic_client(channel, "")
            assert not _is_accepted(anonymous, request)
            cut.silence()
            began = time.monotonic()
            eventually(lambda: _is_accepted(anonymous, request), "the slot of the waiting call is free", within=20)
            assert time.monotonic() - began < 10
