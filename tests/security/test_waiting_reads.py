"""A waiting `GetMessage` keeps no payload, and reads the payload once at most, for a token that may read payloads."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.measurements.large_requests import memory_mb
from services.serving_program import SERVE, ServingProgram
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls
from tickwheel.v1.message_pb2 import STATE_ERRORED

pytestmark = pytest.mark.security

READER, WORKER = "tw_reader", "tw_worker"
PAYLOAD = bytes(range(256)) * 1_024
BASE64 = base64.b64encode(PAYLOAD).decode()
# The payloads of all calls have 50 MiB.
WAITS = 200
KEPT_MB, READ_MB = 25, 5


@pytest.fixture
def queue(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct:
        queue = direct.create_queue("jobs", payload_limit=len(PAYLOAD))
        queue.enqueue(PAYLOAD, id="m")
        yield queue


@pytest.fixture
def program(tickwheel_server: PrivateServer, queue: Queue, tmp_path: Path) -> Iterator[ServingProgram]:
    """The service in a process of its own, whose memory is measured."""
    entries = [entry(READER, '["read"]', 'namespaces = ["*"]'), entry(WORKER, '["consume"]', 'namespaces = ["*"]')]
    write_token_file(tmp_path, *entries)
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, f"--tokens={tmp_path / 'tokens.toml'}") as serving:
        yield serving


@pytest.fixture
def channel(program: ServingProgram) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(program.target) as opened:
        yield opened


def sent_mb(server: Any) -> float:
    """Return the bytes that the server has sent to all its clients so far, in MB."""
    sent: int = server.info("stats")["total_net_output_bytes"]
    return sent / 1e6


def script_calls(server: Any) -> int:
    """Return the number of script calls so far. Each waiting call reads its message twice before it sleeps."""
    return calls_of(server, "evalsha")


def begin(channel: grpc.Channel, token: str, namespace: str) -> list[Any]:
    """Begin all waits for the message, and return the calls."""
    path, metadata = METHODS["GetMessage"].path, (("authorization", f"Bearer {token}"),)
    send: Any = channel.unary_unary(path, None, calls.GetMessageResponse.FromString)
    request = calls.GetMessageRequest(namespace=namespace, queue="jobs", id="m", wait_ms=60_000).SerializeToString()
    return [send.future(request, timeout=90, metadata=metadata) for _ in range(WAITS)]


@pytest.mark.parametrize("token", [READER, WORKER])
def test_waiting_calls_keep_no_payload_and_end_with_what_the_token_may_read(
    program: ServingProgram, channel: grpc.Channel, queue: Queue, server: Any, namespace: str, token: str
) -> None:
    generic_client(channel, token).call("GetMessage", namespace=namespace, queue="jobs", id="m", wait_ms=1)
    at_rest, sent, reads = memory_mb(program.pid, "VmRSS"), sent_mb(server), script_calls(server)
    waiting = begin(channel, token, namespace)
    eventually(lambda: script_calls(server) >= reads + 2 * WAITS, "all calls have read the message twice")
    kept, read = memory_mb(program.pid, "VmRSS") - at_rest, sent_mb(server) - sent
    print(f"{kept:.1f} MB kept, {read:.1f} MB read by {WAITS} waiting calls")
    assert not any(call.done() for call in waiting)
    assert kept < KEPT_MB
    assert read < READ_MB

    # An errored message keeps its payload until its retention is over.
    [message] = queue.dequeue()
    message.fail("boom", final=True)
    messages = [call.result().message for call in waiting]

    may_read = token == WORKER
    assert {(found.state, found.error) for found in messages} == {(STATE_ERRORED, "boom")}
    assert {found.payload for found in messages} == {PAYLOAD if may_read else b""}
    assert {found.payload_withheld for found in messages} == {not may_read}
    if not may_read:
        assert sent_mb(server) - sent < READ_MB


@pytest.mark.parametrize("wait_ms", [1, 60_000])
@pytest.mark.parametrize("token", [READER, WORKER])
def test_a_wait_that_ends_at_once_has_the_payload_if_the_token_may_read_it(
    channel: grpc.Channel, queue: Queue, server: Any, namespace: str, token: str, wait_ms: int
) -> None:
    if wait_ms > 1:
        [message] = queue.dequeue()
        message.fail("boom", final=True)
    sent = sent_mb(server)
    fields = {"namespace": namespace, "queue": "jobs", "id": "m", "wait_ms": wait_ms}
    found = generic_client(channel, token).call("GetMessage", **fields)["message"]
    assert found["state"] == ("STATE_PENDING" if wait_ms == 1 else "STATE_ERRORED")
    assert found["payload"] == (BASE64 if token == WORKER else "")
    assert (sent_mb(server) - sent > len(PAYLOAD) / 1e6) == (token == WORKER)


@pytest.mark.parametrize("token", [READER, WORKER])
def test_a_read_without_a_wait_reads_the_payload_only_for_a_token_that_may(
    channel: grpc.Channel, queue: Queue, server: Any, namespace: str, token: str
) -> None:
    client, fields = generic_client(channel, token), {"namespace": namespace, "queue": "jobs", "id": "m"}
    client.call("GetCounts", namespace=namespace, queue="jobs")
    sent = sent_mb(server)
    assert client.call("GetMessage", **fields)["message"]["payload"] == (BASE64 if token == WORKER else "")
    assert (sent_mb(server) - sent > len(PAYLOAD) / 1e6) == (token == WORKER)
