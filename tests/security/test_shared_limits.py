"""The limits of a token over the processes of one `tickwheel serve --processes 2`."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from services.process import free_port
from tests.integration.cli.command_runner import TICKWHEEL
from tests.integration.generic_client import GenericClient, Stream
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.children import children_of
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

QUICK, WAITER, GREEDY, GOOD = (f"tw_{name}-Of-Processes" for name in ("Quick", "Waiter", "Greedy", "Good"))
NAMESPACE = "shared-limits"
CONNECTIONS, WAITING = 16, 4
JOBS = {"namespace": NAMESPACE, "queue": "jobs"}


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A service with two processes, and its port."""
    here = f'namespaces = ["{NAMESPACE}"]\n'
    write_token_file(
        tmp_path,
        entry(QUICK, '["produce", "consume"]', here + "messages_per_second = 1\nburst = 10\n"),
        entry(WAITER, '["produce", "consume"]', here + f"waiting = {WAITING}\n"),
        entry(GREEDY, '["produce", "consume"]', here),
        entry(GOOD, '["produce", "consume"]', here),
    )
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as tickwheel:
        tickwheel.create_queue("jobs")
    port = free_port()
    options = ["--processes", "2", "--listen", f"127.0.0.1:{port}", "--tokens", str(tmp_path / "tokens.toml")]
    options += ["--max-waiting", str(WAITING)]
    started = subprocess.Popen([*TICKWHEEL, "serve", "--drive", "never", "--url", tickwheel_server.url, *options])
    eventually(lambda: len(children_of(started.pid)) == 2, "both processes run", within=60)
    yield started, port
    started.send_signal(signal.SIGTERM)
    started.wait(60)
    tickwheel_server.clear(NAMESPACE)


def connect(stack: ExitStack, port: int, token: str) -> list[GenericClient]:
    """Open connections, which the kernel spreads over the processes, and wait until the service accepts calls."""
    channels = [
        stack.enter_context(
            grpc.insecure_channel(f"127.0.0.1:{port}", (("grpc.use_local_subchannel_pool", 1), ("grpc.channel_id", n)))
        )
        for n in range(CONNECTIONS)
    ]
    for channel in channels:
        grpc.channel_ready_future(channel).result(60)
    return [generic_client(channel, token) for channel in channels]


def open_stream(client: GenericClient) -> Stream | None:
    """Open a stream and wait for its first delivery; None if the token has no free place for a waiting call."""
    client.call("Enqueue", **JOBS, message={})
    requests: Any = chain([JOBS | {"credit": 1}], iter(Event().wait, None))
    stream: Stream = client.stream("DequeueStream", requests, 60)
    try:
        assert next(iter(stream))["deliveries"]
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return None
    return stream


def test_a_batch_over_one_process_uses_up_the_rate_of_the_others(
    service: tuple[subprocess.Popen[bytes], int],
) -> None:
    with ExitStack() as stack:
        first, *others = connect(stack, service[1], QUICK)
        first.call("EnqueueBatch", **JOBS, messages=[{} for _ in range(500)])
        for other in others:
            with pytest.raises(grpc.RpcError, match="has reached its limit of 1 messages a second"):
                other.call("Enqueue", **JOBS, message={})


def test_the_waiting_calls_of_all_processes_count_and_those_of_a_killed_process_are_given_back(
    service: tuple[subprocess.Popen[bytes], int],
) -> None:
    with ExitStack() as stack:
        clients = connect(stack, service[1], WAITER)
        streams = list(filter(None, map(open_stream, clients)))
        assert len(streams) == WAITING

        killed = children_of(service[0].pid)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        eventually(lambda: len(children_of(service[0].pid) - killed) == 2, "both processes are replaced", within=60)

        again: list[Stream] = []

        def open_more() -> bool:
            again.extend(filter(None, map(open_stream, connect(stack, service[1], WAITER))))
            return len(again) == WAITING

        # The calls of a killed process count until its successor starts, and the other successor may start before.
        eventually(open_more, "the calls of both killed processes no longer count", within=60)


def test_a_token_without_a_limit_has_at_most_half_of_the_waiting_calls_of_all_processes(
    service: tuple[subprocess.Popen[bytes], int],
) -> None:
    with ExitStack() as stack:
        clients = connect(stack, service[1], GREEDY)
        greedy = list(filter(None, map(open_stream, clients)))
        # Both processes have WAITING places, and the kernel may have given all connections to one process.
        assert WAITING // 2 <= len(greedy) <= WAITING
        good = list(filter(None, map(open_stream, connect(stack, service[1], GOOD))))
        assert good
