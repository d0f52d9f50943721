"""The service as programs in other languages use it: only by its .proto files."""

import asyncio
import queue
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, limits
from tickwheel.operations import settle
from tickwheel.plan import Plan
from tickwheel.service import server
from tickwheel.testing import PrivateServer
from tickwheel.v1.message_pb2 import NewMessage
from tickwheel.v1.message_service_pb2 import EnqueueRequest, EnqueueResponse

pytestmark = pytest.mark.integration


LEASE = {"id": "a", "token": "AAAAAAAAAAAAAAAAAAAAAA==", "attempt": 1}


def payload(text: str) -> str:
    return b64encode(text.encode()).decode()


LEASE = {"id": "a", "token": payload("of 16 bytes each")}


@pytest.fixture
def generic_client(real_time_service: ServiceThread, namespace: str) -> Iterator[GenericClient]:
    with grpc.insecure_channel(real_time_service.target) as channel:
        generic_client = GenericClient(channel)
        generic_client.call("OpenNamespace", namespace=namespace, shards=2)
        yield generic_client


def test_a_batch_without_messages_creates_no_queue(generic_client: GenericClient, namespace: str) -> None:
    assert not generic_client.call("EnqueueBatch", namespace=namespace, queue="absent").get("results")
    assert not generic_client.call("ListQueues", namespace=namespace).get("queues")


def test_a_message_passes_all_states_over_the_service(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    new = {"id": "order-17", "payload": payload("17"), "metadata": {"region": "eu"}, "deadline_ms": -(2**51)}
    first = generic_client.call("Enqueue", **where, message=new)["result"]
    assert (first["state"], first["created"]) == ("STATE_PENDING", True)
    assert not generic_client.call("Enqueue", **where, message=new)["result"]["created"]
    [delivery] = generic_client.call("Dequeue", **where, where={"region": "eu"})["deliveries"]
    assert (delivery["payload"], delivery["metadata"]) == (payload("17"), {"region": "eu"})
    assert int(delivery["deadline_ms"]) == -(2**51)
    lease = delivery["lease"]
    assert int(generic_client.call("Extend", **where, leases=[lease], duration_ms=60_000)["lease_until_ms"][0]) > 0
    assert generic_client.call("Fail", **where, items=[{"lease": lease, "retry_in_ms": 0}])["states"] == [
        "STATE_PENDING"
    ]
    assert generic_client.call("Complete", **where, leases=[lease])["lost"] == [0]
    [again] = generic_client.call("Dequeue", **where)["deliveries"]
    assert generic_client.call("Complete", **where, leases=[again["lease"]])["lost"] == []
    assert generic_client.call("GetCounts", **where)["counts"]["completed"] == "1"


def test_a_lease_works_without_the_number_of_its_queue(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("Enqueue", **where, message={"id": "a"})
    [delivery] = generic_client.call("Dequeue", **where)["deliveries"]
    lease = {"id": "a", "token": delivery["lease"]["token"]}
    assert generic_client.call("Complete", **where, leases=[lease])["lost"] == []


def test_a_call_repeated_under_its_request_id_changes_nothing_more(
    generic_client: GenericClient, namespace: str
) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    for id_ in ("a", "b", "c"):
        generic_client.call("Enqueue", **where, message={"id": id_})
    taken = [generic_client.call("Dequeue", **where, limit=2, request_id="mine:1")["deliveries"] for _ in range(2)]
    assert [delivery["lease"] for delivery in taken[0]] == [delivery["lease"] for delivery in taken[1]]
    items = [{"lease": delivery["lease"], "retry_in_ms": 3_600_000} for delivery in taken[0]]
    for _ in range(2):
        assert (
            generic_client.call("Fail", **where, items=items, request_id="mine:2")["states"] == ["STATE_INVISIBLE"] * 2
        )
    assert generic_client.call("GetCounts", **where)["counts"]["invisible"] == "2"


def test_the_items_of_a_fail_are_checked_in_parts(
    generic_client: GenericClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The number of items that were checked in each round of the event loop.
    parts: list[int] = [0]
    fail = settle.fail

    def record(*args: Any) -> Plan[settle.FailedAttempt]:
        if not parts[-1]:
            asyncio.get_running_loop().call_soon(parts.append, 0)
        parts[-1] += 1
        return fail(*args)

    monkeypatch.setattr(settle, "fail", record)
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("CreateQueue", **where)
    items = [{"lease": LEASE | {"id": f"m{n}"}, "error": "é" * 20_000} for n in range(limits.FAIL_ITEMS)]
    states = generic_client.call("Fail", **where, items=items)["states"]
    assert states == ["STATE_UNSPECIFIED"] * limits.FAIL_ITEMS
    assert sum(parts) == limits.FAIL_ITEMS
    assert max(parts) <= 10


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Redrive", {"id": "a"}),
        ("Cancel", {"ids": ["a"]}),
        ("Reschedule", {"id": "a", "delay_ms": 5}),
        ("Extend", {"leases": [LEASE], "duration_ms": 5_000}),
        ("Release", {"leases": [LEASE]}),
        ("Fail", {"items": [{"lease": LEASE}]}),
    ],
)
@pytest.mark.parametrize("before", [("Dequeue", {}), ("Cancel", {"ids": ["x", "y", "z"]})], ids=["Dequeue", "Cancel"])
def test_a_request_id_of_another_call_is_an_error_of_the_caller(
    generic_client: GenericClient, namespace: str, before: tuple[str, dict[str, Any]], name: str, fields: dict[str, Any]
) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("Enqueue", **where, message={"id": "a"})
    generic_client.call(before[0], **where, **before[1], request_id="mine:1")
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call(name, **where, **fields, request_id="mine:1")
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "belongs to another call" in error.details()


def test_messages_are_released_once_under_a_request_id(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("EnqueueBatch", **where, messages=[{"id": f"m{n}"} for n in range(200)])
    leases = [delivery["lease"] for delivery in generic_client.call("Dequeue", **where, limit=200)["deliveries"]]
    generic_client.call("Complete", **where, leases=[leases[7]])
    for _ in range(2):
        assert generic_client.call("Release", **where, leases=leases, request_id="mine:1")["lost"] == [7]
    assert len(generic_client.call("Release", **where, leases=leases, request_id="mine:2")["lost"]) == 200
    taken = generic_client.call("Dequeue", **where, limit=200)["deliveries"]
    assert {delivery["lease"]["attempt"] for delivery in taken} == {1}
    assert len(taken) == 199


def test_results_are_stored_with_their_leases_and_a_final_failure_is_errored(
    generic_client: GenericClient, namespace: str
) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("EnqueueBatch", **where, messages=[{"id": f"m{n}"} for n in range(4)])
    leases = [delivery["lease"] for delivery in generic_client.call("Dequeue", **where, limit=4)["deliveries"]]
    ids = [lease["id"] for lease in leases]
    generic_client.call("Complete", **where, leases=leases[:3], results={0: "first", 2: ""})
    messages = [generic_client.call("GetMessage", **where, id=id_)["message"] for id_ in ids[:3]]
    assert [message.get("result") for message in messages] == ["first", None, ""]
    failed = generic_client.call("Fail", **where, items=[{"lease": leases[3], "error": "boom", "final": True}])
    assert failed["states"] == ["STATE_ERRORED"]


def test_a_refusal_contains_its_reason_for_programs(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("Enqueue", **where, message={"id": "a", "payload": payload("x")})
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call("Enqueue", **where, message={"id": "a", "payload": payload("y")})
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    metadata: Any = refused.value.trailing_metadata()
    status = Status.FromString(dict(metadata)["grpc-status-details-bin"])
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason, status.code) == ("tickwheel", "ID_CONFLICT", 6)


@pytest.mark.parametrize(
    ("method", "fields", "code"),
    [
        ("Enqueue", {"queue": "bad name"}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"id": "x" * 200}}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"delay_ms": -1}}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"due_ms": 2**62}}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"deadline_ms": 2**53}}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"max_attempts": 0}}, "INVALID_ARGUMENT"),
        ("Enqueue", {"message": {"metadata": {str(n): "" for n in range(17)}}}, "INVALID_ARGUMENT"),
        ("EnqueueBatch", {"messages": [{}] * 1_001}, "INVALID_ARGUMENT"),
        ("Dequeue", {"limit": 1_001}, "INVALID_ARGUMENT"),
        ("Dequeue", {"limit": -1}, "INVALID_ARGUMENT"),
        ("Dequeue", {"wait_ms": 3_600_001}, "INVALID_ARGUMENT"),
        ("Dequeue", {"request_id": "none"}, "INVALID_ARGUMENT"),
        ("Dequeue", {"consistency": 7}, "INVALID_ARGUMENT"),
        ("GetCounts", {"queue": "none"}, "NOT_FOUND"),
        ("Dequeue", {"namespace": "none"}, "NOT_FOUND"),
        ("Complete", {"leases": [{"id": "a", "token": payload("short")}]}, "INVALID_ARGUMENT"),
        ("Complete", {"leases": [LEASE], "results": {1: "whose?"}}, "INVALID_ARGUMENT"),
        ("Complete", {"leases": [LEASE], "results": {-1: "whose?"}}, "INVALID_ARGUMENT"),
        ("Complete", {"leases": [LEASE], "results": {0: "x" * 1_025}}, "INVALID_ARGUMENT"),
        ("Fail", {"items": [{"lease": LEASE, "final": True, "retry_in_ms": 1}]}, "INVALID_ARGUMENT"),
        ("Release", {"leases": [LEASE] * 1_001}, "INVALID_ARGUMENT"),
        ("ListMessages", {"page_token": "9:9"}, "INVALID_ARGUMENT"),
        ("ListMessages", {"state": 77}, "INVALID_ARGUMENT"),
        ("GetMessage", {"id": "none"}, "NOT_FOUND"),
    ],
)
def test_an_invalid_request_is_refused(
    generic_client: GenericClient, namespace: str, method: str, fields: dict[str, Any], code: str
) -> None:
    generic_client.call("Enqueue", namespace=namespace, queue="orders", message={})
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call(method, **{"namespace": namespace, "queue": "orders"} | fields)
    assert refused.value.code().name == code
    assert generic_client.call("GetCounts", namespace=namespace, queue="orders")["counts"]["pending"] == "1"


@pytest.mark.parametrize(
    "wrong",
    [{"final": True, "retry_in_ms": 1}, {"retry_in_ms": 2**52}, {"error": "x" * 262_145}],
    ids=["final with a back-off", "too long back-off", "too long error"],
)
def test_a_failure_of_several_messages_with_an_invalid_one_fails_none(
    generic_client: GenericClient, namespace: str, wrong: dict[str, Any]
) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("EnqueueBatch", **where, messages=[{}, {}])
    leases = [found["lease"] for found in generic_client.call("Dequeue", **where, limit=2)["deliveries"]]
    items: list[dict[str, Any]] = [{"lease": lease, "final": True} for lease in leases]
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call("Fail", **where, items=[items[0], {"lease": leases[1]} | wrong], request_id="mine:1")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert generic_client.call("GetCounts", **where)["counts"]["running"] == "2"
    # The request id is not used either.
    states = generic_client.call("Fail", **where, items=items, request_id="mine:1")["states"]
    assert states == ["STATE_ERRORED"] * 2


def test_bytes_that_are_not_a_request_are_refused(generic_client: GenericClient) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.raw("Enqueue", b"\xff" * 100)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_over_4_mib_is_refused(generic_client: GenericClient) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.raw("Enqueue", bytes(5 * 1024 * 1024))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stream_of_batches_is_answered_once(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    generic_client.call("Enqueue", **where, message={"id": "m0", "payload": payload("other")})
    batches = [{"messages": [{"id": f"m{n}"} for n in range(first, first + 100)]} for first in range(0, 300, 100)]
    result = generic_client.send_many("EnqueueStream", [where | batches[0], *batches[1:], batches[2]])
    assert (result["created"], result["present"], result["refused_count"]) == ("299", "100", "1")
    assert [(refusal["id"], refusal["refusal"]["reason"]) for refusal in result["refused"]] == [("m0", "ID_CONFLICT")]


def test_a_stream_delivers_no_more_than_its_credit(generic_client: GenericClient, namespace: str) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
    stream = generic_client.stream("DequeueStream", iter(requests.get, None))
    ids: list[str] = []

    def read() -> None:
        for answer in stream:
            ids.extend(delivery["lease"]["id"] for delivery in answer["deliveries"])

    reading = threading.Thread(target=read)
    reading.start()
    generic_client.call("CreateQueue", **where)
    requests.put(where | {"credit": 3})
    generic_client.call("EnqueueBatch", **where, messages=[{"id": f"m{n}"} for n in range(10)])
    eventually(lambda: len(ids) == 3, "the stream delivers as many messages as its credit")
    assert generic_client.call("GetCounts", **where)["counts"]["running"] == "3"
    requests.put({"credit": 7})
    eventually(lambda: len(ids) == 10, "the stream delivers the other messages")
    requests.put(None)
    reading.join(20)
    assert not reading.is_alive()
    assert sorted(ids) == sorted(f"m{n}" for n in range(10))


def test_the_service_reports_its_health(real_time_service: ServiceThread) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel:
        stub: Any = HealthStub(channel)
        for name in ("", "tickwheel.v1.MessageService", "tickwheel.v1.QueueService"):
            assert stub.Check(HealthCheckRequest(service=name), timeout=20).status == HealthCheckResponse.SERVING


def test_the_service_reports_its_methods_by_reflection(real_time_service: ServiceThread) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel:
        requests = iter([ServerReflectionRequest(list_services="")])
        stub: Any = ServerReflectionStub(channel)
        [reply] = stub.ServerReflectionInfo(requests, timeout=20)
        names = {service.name for service in reply.list_services_response.service}
        assert names > {"tickwheel.v1.MessageService", "tickwheel.v1.QueueService"}


def test_reflection_has_the_version_v1_with_the_same_messages(real_time_service: ServiceThread) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel:
        reflect = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        symbol = ServerReflectionRequest(file_containing_symbol="tickwheel.v1.MessageService")
        listed, found = reflect(iter([ServerReflectionRequest(list_services=""), symbol]), timeout=20)
        names = {service.name for service in listed.list_services_response.service}
        assert names > {"tickwheel.v1.MessageService", "tickwheel.v1.QueueService"}
        assert found.file_descriptor_response.file_descriptor_proto


def test_a_waiting_call_is_answered_when_the_server_stops(tickwheel_server: PrivateServer, namespace: str) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as direct:
        direct.create_queue("orders")
    answers: list[Any] = []
    with ServiceThread(tickwheel_server.url) as serving, grpc.insecure_channel(serving.target) as channel:
        generic_client = GenericClient(channel)
        fields = {"namespace": namespace, "queue": "orders", "wait_ms": 60_000}
        waiting = threading.Thread(target=lambda: answers.append(generic_client.call("Dequeue", timeout=70, **fields)))
        waiting.start()
        with tickwheel_server.client() as client:
            eventually(
                lambda: any(client.pubsub_shardnumsub(f"{namespace}:{{0}}:q:orders:wake")[0][1:]), "the call waits"
            )
        serving.stop()
        waiting.join(20)
    assert answers == [{"deliveries": []}]


def test_a_call_in_flight_may_finish_after_the_server_has_begun_to_stop(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_CLOSE_S", 0.0)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as direct:
        direct.create_queue("orders")
    with ServiceThread(tickwheel_server.url) as serving, grpc.insecure_channel(serving.target) as channel:
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call: Any = channel.stream_unary("/tickwheel.v1.MessageService/Enqueue")
        answer = call.future(iter(requests.get, None), timeout=60)
        counters = serving.server.counters.methods["Enqueue"]
        eventually(lambda: counters.in_flight == 1, "the call is in flight")
        stopping = threading.Thread(target=serving.stop)
        stopping.start()
        eventually(lambda: not is_port_open(serving.target), "the service has begun to stop")
        requests.put(EnqueueRequest(namespace=namespace, queue="orders", message=NewMessage()).SerializeToString())
        requests.put(None)
        assert EnqueueResponse.FromString(answer.result()).result.created
        stopping.join(20)


def is_port_open(target: str) -> bool:
    host, _, port = target.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0
