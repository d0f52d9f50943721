"""Limits of one token, and of one process of the service, and how clients react to them."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tests.integration.generic_client import GenericClient, Stream
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import client, entry, generic_client, write_token_file
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, LimitExceeded, NamespaceNotFound, NewMessage, Tickwheel, Unavailable, limits
from tickwheel.rpc.methods import METHODS
from tickwheel.service.token_file import TokenFile
from tickwheel.testing import PrivateServer
from tickwheel.v1.message_service_pb2 import DequeueRequest
from tickwheel.v1.queue_service_pb2 import OpenNamespaceRequest

pytestmark = pytest.mark.security

SLOW, LATE, QUICK, WAITER, FREE, LOOP = (f"tw_{name}-Of-Limits" for name in "abcdef")
NAMESPACE = "service-limits"
ROLES = '["produce", "consume", "admin"]'
LONG = timedelta(seconds=20)
# The calls that can wait, each with the fields of a request for what does not happen during a test.
WAITING: dict[str, dict[str, Any]] = {
    "Dequeue": {"queue": "later"},
    "AwaitMessages": {"queues": ["later"]},
    "GetMessage": {"queue": "later", "id": "m"},
}


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    here = f'namespaces = ["{NAMESPACE}"]\n'
    tokens = write_token_file(
        tmp_path_factory.mktemp("tokens"),
        entry(SLOW, ROLES, here + "messages_per_second = 1\nburst = 20"),
        entry(LATE, ROLES, here + "messages_per_second = 1\nburst = 20"),
        entry(LOOP, ROLES, here + "messages_per_second = 1\nburst = 20"),
        entry(QUICK, ROLES, here + "messages_per_second = 200\nburst = 20"),
        entry(WAITER, ROLES, here + "waiting = 2"),
        entry(FREE, ROLES, here),
    )
    with jobs_namespace(tickwheel_server, NAMESPACE), ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving


def details(refused: Any) -> tuple[ErrorInfo, RetryInfo]:
    status = Status.FromString(dict(refused.trailing_metadata())["grpc-status-details-bin"])
    info, retry = ErrorInfo(), RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)
    return info, retry


def open_stream(generic_client: GenericClient, request: dict[str, Any]) -> Stream:
    """Open a stream and wait for its first delivery, so that the stream counts as a waiting call."""
    generic_client.call("Enqueue", **request, message={})
    requests: Any = chain([request | {"credit": 1}], iter(Event().wait, None))
    stream: Stream = generic_client.stream("DequeueStream", requests, 60)
    assert next(iter(stream))["deliveries"]
    return stream


def test_a_token_over_its_rate_gets_the_time_of_a_retry_and_can_settle_its_leases(
    channel: grpc.Channel,
) -> None:
    slow, where = generic_client(channel, SLOW), {"namespace": NAMESPACE, "queue": "slow"}
    # The burst is 20. The two batches overdraw it by 11 seconds.
    slow.call("EnqueueBatch", **where, messages=[{"id": f"m{n}"} for n in range(10)])
    deliveries = slow.call("Dequeue", **where, limit=10)["deliveries"]
    slow.call("EnqueueBatch", **where, messages=[{"id": f"n{n}"} for n in range(20)])
    with pytest.raises(grpc.RpcError) as refused:
        slow.call("Enqueue", **where, message={"id": "more"})
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    info, retry = details(refused.value)
    assert (info.domain, info.reason) == ("tickwheel", "LIMIT_EXCEEDED")
    assert 5 < retry.retry_delay.ToTimedelta().total_seconds() <= 11
    with pytest.raises(grpc.RpcError):
        slow.call("GetCounts", **where)
    assert slow.call("Complete", **where, leases=[delivery["lease"] for delivery in deliveries])["lost"] == []
    free = generic_client(channel, FREE)
    assert free.call("GetCounts", **where)["counts"]["pending"] == "20"


def test_released_messages_count_afterwards_and_no_release_is_refused(channel: grpc.Channel) -> None:
    free, loop = generic_client(channel, FREE), generic_client(channel, LOOP)
    where = {"namespace": NAMESPACE, "queue": "released"}
    free.call("EnqueueBatch", **where, messages=[{} for _ in range(100)])
    # Each of two dequeues of 50 messages costs four messages of the burst of 20.
    leases = [
        [delivery["lease"] for delivery in loop.call("Dequeue", **where, limit=50)["deliveries"]] for _ in range(2)
    ]
    for batch in leases:
        assert loop.call("Release", **where, leases=batch)["lost"] == []
    with pytest.raises(grpc.RpcError) as refused:
        loop.call("Dequeue", **where, limit=50)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 66 < details(refused.value)[1].retry_delay.ToTimedelta().total_seconds() <= 88


@pytest.mark.parametrize(
    ("name", "fields"), [("GetCounts", {"queue": "jobs"}), ("AwaitMessages", {"queues": ["jobs", "idle", "absent"]})]
)
def test_a_read_of_all_shards_costs_more_in_a_namespace_with_many_shards(
    tickwheel_server: PrivateServer, tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    where = {"namespace": "service-shards", "queue": "jobs"}
    tokens = write_token_file(tmp_path, entry(SLOW, ROLES, 'namespaces = ["*"]\nmessages_per_second = 1\nburst = 8'))
    with Tickwheel(tickwheel_server.url, namespace=where["namespace"], shards=64, drive=False) as tickwheel:
        tickwheel.create_queue("jobs")
    with ServiceThread(tickwheel_server.url, tokens=tokens) as serving, grpc.insecure_channel(serving.target) as opened:
        slow = generic_client(opened, SLOW)
        # The call costs one message, and opens the namespace in the service.
        assert slow.call("GetQueue", **where)["queue"]
        slow.call(name, namespace=where["namespace"], **fields)
        with pytest.raises(grpc.RpcError) as refused:
            slow.call(name, namespace=where["namespace"], **fields)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    tickwheel_server.clear(where["namespace"])


def test_each_dequeue_of_a_stream_costs_its_shards(tickwheel_server: PrivateServer, tmp_path: Path) -> None:
    where, deliveries = {"namespace": "service-shards", "queue": "jobs"}, 4
    # Each dequeue costs 8. After the last one, the token needs 7 s until it may make another call.
    limit = f'namespaces = ["*"]\nmessages_per_second = 1\nburst = {8 * deliveries - 6}'
    tokens = write_token_file(tmp_path, entry(SLOW, ROLES, limit))
    with (
        Tickwheel(tickwheel_server.url, namespace=where["namespace"], shards=64, drive=False) as tickwheel,
        ServiceThread(tickwheel_server.url, tokens=tokens) as serving,
        grpc.insecure_channel(serving.target) as opened,
    ):
        jobs = tickwheel.create_queue("jobs")
        slow = generic_client(opened, SLOW)
        # The call costs one message, and opens the namespace in the service.
        assert slow.call("GetQueue", **where)["queue"]
        is_over = Event()
        requests: Any = chain([{**where, "credit": 100}], iter(is_over.wait, True))
        jobs.enqueue()
        for _ in islice(slow.stream("DequeueStream", requests), deliveries):
            jobs.enqueue()
        with pytest.raises(grpc.RpcError, match="has reached its limit"):
            slow.call("GetQueue", **where)
        is_over.set()
    tickwheel_server.clear(where["namespace"])


def test_a_client_waits_until_the_rate_of_its_token_permits_the_call(service: ServiceThread) -> None:
    with client(service, QUICK, LONG, namespace=NAMESPACE) as quick:
        jobs, began = quick.queue("quick"), time.monotonic()
        for n in range(60):
            jobs.enqueue(b"x", id=f"m{n}")
        jobs.enqueue_many(NewMessage(b"x", id=f"n{n}") for n in range(100))
        assert jobs.counts()["pending"] == 160
        # All calls except the burst, at 200 a second.
        assert time.monotonic() - began >= 140 / 200


def test_a_client_that_cannot_wait_long_enough_raises_at_once(service: ServiceThread) -> None:
    with client(service, LATE, timedelta(seconds=10), namespace=NAMESPACE) as late:
        many = [NewMessage(b"x") for _ in range(100)]

        def refused() -> LimitExceeded | None:
            try:
                late.queue("late").enqueue_many(many)
            except LimitExceeded as error:
                return error
            return None

        error: Any = eventually(refused, "the burst is used up")
        began = time.monotonic()
        with pytest.raises(LimitExceeded, match="has reached its limit of 1 messages a second"):
            late.queue("late").counts()
        assert time.monotonic() - began < 5
        assert error.retry_after_ms > 10_000


def test_a_stream_of_batches_over_the_rate_is_slowed_and_not_refused(channel: grpc.Channel) -> None:
    quick, began = generic_client(channel, QUICK), time.monotonic()
    batches: list[dict[str, Any]] = [{"messages": [{} for _ in range(50)]} for _ in range(4)]
    batches[0] |= {"namespace": NAMESPACE, "queue": "streamed"}
    assert quick.send_many("EnqueueStream", batches)["created"] == "200"
    assert time.monotonic() - began >= 130 / 200


def test_waiting_calls_of_a_token_are_limited_and_their_places_are_freed(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    waiter, request = generic_client(channel, WAITER), {"namespace": NAMESPACE, "queue": "empty"}
    streams = [open_stream(waiter, request) for _ in range(2)]

    def refused() -> bool:
        try:
            waiter.call("Dequeue", **request, wait_ms=1)
        except grpc.RpcError as error:
            info, _ = details(error)
            return bool(info.reason == "LIMIT_EXCEEDED")
        return False

    assert refused()
    # A call that does not wait does not count, and neither do calls of other tokens.
    assert waiter.call("Dequeue", **request)["deliveries"] == []
    assert generic_client(channel, FREE).call("Dequeue", **request, wait_ms=1)["deliveries"] == []
    answers: list[Any] = []
    with client(service, WAITER, LONG, namespace=NAMESPACE) as python:
        waiting = threading.Thread(target=lambda: answers.append(python.queue("empty").dequeue(wait=LONG)))
        waiting.start()
        for stream in streams:
            stream.cancel()
        eventually(lambda: not refused(), "the waiting calls have ended")
        generic_client(channel, FREE).call("Enqueue", **request, message={"id": "one"})
        waiting.join(20)
        assert [message.id for [message] in answers] == ["one"]


@pytest.mark.parametrize("name", WAITING)
def test_each_call_that_waits_counts_as_a_waiting_call_and_delays_no_answer(
    service: ServiceThread, channel: grpc.Channel, name: str
) -> None:
    generic_client(channel, FREE).call(
        "Enqueue", namespace=NAMESPACE, queue="later", message={"id": "m", "delay_ms": 3_600_000}
    )
    method, fields = METHODS[name], {"namespace": NAMESPACE} | WAITING[name]
    request = method.request(wait_ms=60_000, **fields).SerializeToString()
    send: Any = channel.unary_unary(method.path)
    metadata = (("authorization", f"Bearer {WAITER}"),)
    waiting = [send.future(request, timeout=60, metadata=metadata) for _ in range(2)]
    eventually(lambda: service.server._wait_limit.in_use == 2, "the calls wait")
    # Calls that build answers have a few turns, which a waiting call does not hold.
    eventually(lambda: not service.server._answers.building.total, "no answer is built")
    with pytest.raises(grpc.RpcError) as refused:
        generic_client(channel, WAITER).call(name, **fields, wait_ms=1)
    assert details(refused.value)[0].reason == "LIMIT_EXCEEDED"
    for call in waiting:
        call.cancel()
    eventually(lambda: service.server._wait_limit.in_use == 0, "the places are free")


def test_every_call_that_can_wait_is_tested_above() -> None:
    assert {method.name for method in METHODS.values() if "wait_ms" in method.request.DESCRIPTOR.fields_by_name} == {
        *WAITING
    }


def test_waiting_calls_of_a_process_are_limited_over_all_callers(tickwheel_server: PrivateServer) -> None:
    with ServiceThread(tickwheel_server.url, waiting=3) as serving, grpc.insecure_channel(serving.target) as channel:
        anonymous, request = generic_client(channel, ""), {"namespace": NAMESPACE, "queue": "jobs"}
        streams = [open_stream(anonymous, request) for _ in range(3)]
        with pytest.raises(grpc.RpcError) as refused:
            anonymous.call("Dequeue", **request, wait_ms=1)
        assert "this process of the service has reached its limit of 3 waiting calls" in str(refused.value.details())
        for stream in streams:
            stream.cancel()


def test_waiting_calls_of_a_token_without_a_limit_leave_places_for_other_tokens(
    tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    here = f'namespaces = ["{NAMESPACE}"]\n'
    tokens = write_token_file(
        tmp_path, entry(QUICK, ROLES, here), entry(FREE, ROLES, here), entry(WAITER, ROLES, here + "waiting = 4")
    )
    request = {"namespace": NAMESPACE, "queue": "jobs"}
    with (
        Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as tickwheel,
        ServiceThread(tickwheel_server.url, tokens=tokens, waiting=8) as serving,
        grpc.insecure_channel(serving.target) as channel,
    ):
        tickwheel.create_queue("jobs")
        greedy, good, waiter = (generic_client(channel, token) for token in (QUICK, FREE, WAITER))
        streams = [open_stream(greedy, request) for _ in range(4)]
        with pytest.raises(grpc.RpcError) as refused:
            greedy.call("Dequeue", **request, wait_ms=1)
        assert details(refused.value)[0].reason == "LIMIT_EXCEEDED"
        assert "has 4 waiting calls, and a token without the limit `waiting`" in str(refused.value.details())
        streams += [open_stream(good, request) for _ in range(2)]
        with pytest.raises(grpc.RpcError, match="has 2 waiting calls, and a token without the limit"):
            good.call("Dequeue", **request, wait_ms=1)
        # The operator has permitted more to this token.
        streams += [open_stream(waiter, request) for _ in range(2)]
        with pytest.raises(grpc.RpcError, match="this process of the service has reached its limit of 8 waiting"):
            waiter.call("Dequeue", **request, wait_ms=1)
        for stream in streams:
            stream.cancel()
        eventually(lambda: serving.server._wait_limit.in_use == 0, "the places are free")


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_token_has_a_waiting_call_even_if_the_process_has_few_places(
    tickwheel_server: PrivateServer, tmp_path: Path, places: int
) -> None:
    tokens = write_token_file(tmp_path, entry(FREE, ROLES, f'namespaces = ["{NAMESPACE}"]'))
    request = {"namespace": NAMESPACE, "queue": "jobs"}
    with (
        Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as tickwheel,
        ServiceThread(tickwheel_server.url, tokens=tokens, waiting=places) as serving,
        grpc.insecure_channel(serving.target) as channel,
    ):
        tickwheel.create_queue("jobs")
        only = generic_client(channel, FREE)
        stream = open_stream(only, request)
        with pytest.raises(grpc.RpcError) as refused:
            only.call("Dequeue", **request, wait_ms=1)
        assert details(refused.value)[0].reason == "LIMIT_EXCEEDED"
        stream.cancel()


def test_calls_over_the_limit_of_a_caller_are_refused_and_clients_retry(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OTHER_CALLS", 2)
    monkeypatch.setattr(limits, "CALLER_CALLS", 1)
    with ServiceThread(tickwheel_server.url, waiting=1) as serving, grpc.insecure_channel(serving.target) as channel:
        # Of three places, one caller may have one. This call has no request.
        never = threading.Event()
        endless: Any = channel.stream_stream("/tickwheel.v1.QueueService/ListQueues")
        call = endless(iter(never.wait, None), timeout=60)
        in_flight = serving.server.counters.methods["ListQueues"]
        eventually(lambda: in_flight.in_flight == 1, "the call has a place")
        with grpc.insecure_channel(serving.target) as another, pytest.raises(grpc.RpcError) as refused:
            generic_client(another, "").call("ListQueues", namespace=NAMESPACE, timeout=2)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(refused.value)[0].reason == "LIMIT_EXCEEDED"
        with pytest.raises(LimitExceeded):
            Tickwheel(serving.url, namespace=NAMESPACE, timeout=timedelta(milliseconds=500))
        ending = threading.Timer(0.3, call.cancel)
        ending.start()
        with Tickwheel(serving.url, namespace=NAMESPACE, timeout=LONG) as python:
            assert "jobs" in [queue.name for queue in python.queues()]
        never.set()


def test_connections_of_a_process_are_limited(tickwheel_server: PrivateServer) -> None:
    alone = [("grpc.use_local_subchannel_pool", 1)]
    with ServiceThread(tickwheel_server.url, connections=4) as serving, ExitStack() as opened:
        channels = [opened.enter_context(grpc.insecure_channel(serving.target, options=alone)) for _ in range(4)]
        for channel in channels:
            generic_client(channel, "").call("ListQueues", namespace=NAMESPACE)
        with pytest.raises(Unavailable) as refused:
            Tickwheel(serving.url, namespace=NAMESPACE, timeout=timedelta(milliseconds=500))
        assert not refused.value.may_have_happened
        channels[0].close()
        with Tickwheel(serving.url, namespace=NAMESPACE, timeout=LONG) as python:
            python.queues()


def test_a_call_without_a_token_is_refused_before_its_request_is_read(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    send: Any = channel.stream_stream("/tickwheel.v1.MessageService/EnqueueBatch", None, None)
    never = threading.Event()
    call = send(iter(never.wait, None), timeout=20)
    with pytest.raises(grpc.RpcError) as refused:
        next(call)
    never.set()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_invalid_limits_in_the_token_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    for rest, message in (
        ("messages_per_second = 0", "must be a whole number from 1 to 1000000"),
        ("messages_per_second = 1.5", "must be a whole number"),
        ("burst = 5", "needs messages_per_second"),
        ("waiting = -1", "must be a whole number"),
    ):
        path.write_text(entry(SLOW, ROLES, rest))
        with pytest.raises(ValueError, match=message):
            TokenFile(path)


def test_headers_beyond_16_kib_are_refused(channel: grpc.Channel) -> None:
    free = generic_client(channel, FREE)
    assert free.call("ListQueues", namespace=NAMESPACE)
    for size, allowed in ((7_000, True), (17_000, False)):
        large = GenericClient(channel, (("authorization", f"Bearer {FREE}"), ("x", "x" * size)))
        if allowed:
            large.call("ListQueues", namespace=NAMESPACE)
            continue
        with pytest.raises(grpc.RpcError) as refused:
            large.call("ListQueues", namespace=NAMESPACE)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_every_call_in_a_namespace_outside_the_grant_is_refused(service: ServiceThread, channel: grpc.Channel) -> None:
    request = {"namespace": "another", "queue": "jobs"}
    free = generic_client(channel, FREE)
    for call in (
        lambda: free.call("Dequeue", **request),
        lambda: free.call("Dequeue", **request, wait_ms=60_000),
        lambda: list(free.stream("DequeueStream", iter([request | {"credit": 1}]))),
        lambda: free.call("GetMessage", **request, id="a"),
        lambda: free.call("ListMessages", **request),
        lambda: free.call("GetCounts", **request),
        lambda: free.call("ListQueues", namespace="another"),
        lambda: free.call("OpenNamespace", namespace="another"),
        lambda: free.send_many("EnqueueStream", [request | {"messages": [{}]}]),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_creates_no_namespace_with_many_shards_and_opens_one_that_exists(
    tickwheel_server: PrivateServer,
) -> None:
    name = "with-many-shards"
    with ServiceThread(tickwheel_server.url, created_shards=16) as serving:
        with pytest.raises(InvalidArgument, match=r"at most 16 for a new namespace, not 17.*--shards 17.*--max-shards"):
            Tickwheel(serving.url, namespace=name, shards=17)
        # The refused call has written nothing.
        with pytest.raises(NamespaceNotFound):
            Tickwheel(serving.url, namespace=name, existing=True)
        with Tickwheel(tickwheel_server.url, namespace=name, shards=17, drive=False):
            pass
        with Tickwheel(serving.url, namespace=name, shards=17) as tickwheel:
            tickwheel.queue("q").enqueue(b"x")
            assert len(tickwheel.queue("q").dequeue()) == 1
            tickwheel.delete_namespace()
        with Tickwheel(serving.url, namespace=name, shards=16) as tickwheel:
            tickwheel.delete_namespace()


def test_a_call_costs_the_shards_of_the_namespace_and_of_one_that_it_may_create(
    tickwheel_server: PrivateServer,
) -> None:
    name = "with-shards"
    open_it = OpenNamespaceRequest(namespace=name, shards=64)
    with ServiceThread(tickwheel_server.url, created_shards=128) as serving:
        count = serving.server._shards
        assert [count(open_it), count(DequeueRequest(namespace=name))] == [64, 1]
        assert count(OpenNamespaceRequest(namespace=name, shards=2**31 - 1)) == 128
        assert count(OpenNamespaceRequest(namespace=name, shards=64, existing=True)) == 1
        with Tickwheel(serving.url, namespace=name, shards=64) as tickwheel:
            assert [count(open_it), count(DequeueRequest(namespace=name))] == [1, 64]
            tickwheel.delete_namespace()
            assert count(open_it) == 64
