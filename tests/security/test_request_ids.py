"""Request ids of the service: they belong to the token, and a number of a slot stands for one call only."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tickwheel import Tickwheel
from tickwheel.operations.answered_calls import register_call
from tickwheel.operations.results import RESULT
from tickwheel.operations.sessions import NamedCall, RequestId, RequestSessions
from tickwheel.service.token_file import TokenFile
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls, queue_service_pb2 as admin

pytestmark = pytest.mark.security

# Fixed values, because all processes of a run must collect the same tests.
WORKER, OTHER, PRODUCER, RENEWED = (f"tw_{name}-Of-Request-Ids" for name in ("a", "b", "c", "d"))
SHARDS = {"one": 1, "four": 4}
HERE = 'namespaces = ["request-ids-*"]'
ROLES = '["produce", "consume", "admin"]'
JOINED = ("tw_b-Of-Joined-Request-Ids", "tw_Ab-Of-Joined-Request-Ids")
ENTRIES = [
    entry(WORKER, ROLES, HERE),
    entry(OTHER, ROLES, HERE),
    entry(PRODUCER, '["produce"]', HERE),
    *(entry(token, ROLES, HERE) for token in JOINED),
]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TokenFile]:
    folder = tmp_path_factory.mktemp("tokens")
    return folder, write_token_file(folder, *ENTRIES)


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tokens: tuple[Path, TokenFile]) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, tokens=tokens[1]) as serving:
        yield serving


class Scene:
    """A queue of one namespace, and the clients with each of the tokens."""

    def __init__(self, channel: grpc.Channel, server: PrivateServer, namespace: str, shards: int) -> None:
        self.namespace, self.shards, self._server = namespace, shards, server
        self.worker, self.other, self.producer = (generic_client(channel, name) for name in (WORKER, OTHER, PRODUCER))
        self.worker.call("OpenNamespace", namespace=namespace, shards=shards)
        # The ids of each shard, so that a test selects the shards that its calls concern.
        self.ids_by_shard: list[list[str]] = [[] for _ in range(shards)]
        for id_ in (f"m{n}" for n in range(60)):
            self.ids_by_shard[self.shard(id_)].append(id_)
        self.ids = self.ids_by_shard[self.shard("m0")][:4]
        self.elsewhere = next((ids[0] for ids in self.ids_by_shard if ids[0] not in self.ids), "m0")

    def shard(self, id_: str) -> int:
        return shard_of("q", id_.encode(), self.shards)

    def call(self, client: GenericClient, name: str, **fields: Any) -> dict[str, Any]:
        return client.call(name, namespace=self.namespace, queue="q", **fields)

    def enqueue(self, *ids: str) -> None:
        self.call(self.worker, "EnqueueBatch", messages=[{"id": id_} for id_ in ids])

    def dequeue(self, client: GenericClient, request_id: str = "", **fields: Any) -> list[dict[str, Any]]:
        """Return the leases of the delivered messages."""
        answer = self.call(client, "Dequeue", request_id=request_id, **fields)
        return [delivery["lease"] for delivery in answer["deliveries"]]

    def prepare(self, *shards: int) -> list[tuple[list[str], list[dict[str, Any]]]]:
        """Enqueue messages on shards. Return for each shard the ids of two messages, and the leases of two others."""
        ids = [self.ids_by_shard[shard][:4] for shard in shards]
        self.enqueue(*(id_ for of_shard in ids for id_ in of_shard[2:]))
        leases = {lease["id"]: lease for lease in self.dequeue(self.worker, limit=4)}
        self.enqueue(*(id_ for of_shard in ids for id_ in of_shard[:2]))
        return [(of_shard[:2], [leases[id_] for id_ in of_shard[2:]]) for of_shard in ids]

    def slot_of(self, registrar: int) -> str:
        """Return a slot of the worker whose calls are registered on the shard ``registrar``."""
        slots = (f"slot-{n}" for n in range(200))
        return next(slot for slot in slots if self.named(f"{slot}:1").registration_shard(self.shards) == registrar)

    def named(self, request_id: str, kind: str = "", content: bytes = b"") -> NamedCall:
        return RequestId.parse(request_id, WORKER[3:]).call("q", kind, content)

    def refused(self, name: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as refused:
            self.call(self.worker, name, **fields)
        error: Any = refused.value
        return error.code(), error.details()

    def records(self) -> list[Any]:
        """Return everything that is stored for messages: records, index of ready messages, events."""
        with self._server.client() as connected:
            prefixes = [f"{self.namespace}:{{{shard}}}:" for shard in range(self.shards)]
            return [
                (
                    connected.hgetall(f"{prefix}messages"),
                    connected.zrange(f"{prefix}q:q:ready", 0, -1, withscores=True),
                    connected.xlen(f"{prefix}events"),
                    connected.hgetall(f"{prefix}queues"),
                )
                for prefix in prefixes
            ]


@pytest.fixture(params=SHARDS)
def scene(channel: grpc.Channel, tickwheel_server: PrivateServer, request: pytest.FixtureRequest) -> Iterator[Scene]:
    yield from make_scene(channel, tickwheel_server, SHARDS[request.param])


@pytest.fixture
def spread(channel: grpc.Channel, tickwheel_server: PrivateServer) -> Iterator[Scene]:
    """A queue of four shards, for calls that concern different shards."""
    yield from make_scene(channel, tickwheel_server, 4)


def make_scene(channel: grpc.Channel, server: PrivateServer, shards: int) -> Iterator[Scene]:
    name = f"request-ids-{uuid4().hex}"
    yield Scene(channel, server, name, shards)
    server.clear(name)


def test_a_token_does_not_get_the_answer_to_a_request_of_another_token(scene: Scene) -> None:
    scene.enqueue(*scene.ids[:2])
    [mine] = scene.dequeue(scene.worker, "workerA:1")
    [theirs] = scene.dequeue(scene.other, "workerA:1")
    assert mine["id"] != theirs["id"]
    assert [scene.dequeue(client, "workerA:1") for client in (scene.worker, scene.other)] == [[mine], [theirs]]


@pytest.mark.parametrize("sequence", [1, 2, 999_999_999_999_999])
def test_a_token_cannot_use_up_the_numbers_of_another_token(scene: Scene, sequence: int) -> None:
    scene.enqueue(*scene.ids)
    assert len(scene.dequeue(scene.worker, "workerA:1")) == 1
    ids = scene.ids[3:]
    scene.call(scene.producer, "Cancel", ids=ids, request_id=f"workerA:{sequence}")
    assert scene.dequeue(scene.other, f"workerA:{sequence}", where={"no": "message"}) == []
    assert len(scene.dequeue(scene.worker, "workerA:2", limit=2)) == 2


def test_a_successor_of_a_worker_gets_the_first_answer(scene: Scene, service: ServiceThread) -> None:
    scene.enqueue(*scene.ids)
    leases = scene.dequeue(scene.worker, "workerA:1", limit=3, worker="host-1:77")
    with grpc.insecure_channel(service.target) as channel:
        successor = generic_client(channel, WORKER)
        assert scene.dequeue(successor, "workerA:1", limit=3, worker="host-2:5", wait_ms=100) == leases


def test_a_token_that_is_renewed_under_its_name_keeps_its_request_ids(
    scene: Scene, channel: grpc.Channel, tokens: tuple[Path, TokenFile]
) -> None:
    scene.enqueue(*scene.ids)
    leases = scene.dequeue(scene.worker, "workerA:1", limit=2)
    folder, file = tokens
    renewed = entry(RENEWED, ROLES, HERE).replace(RENEWED[3:], WORKER[3:])
    try:
        (folder / "tokens.toml").write_text("".join([renewed, *ENTRIES[1:]]))
        file.reload_if_changed()
        assert scene.dequeue(generic_client(channel, RENEWED), "workerA:1", limit=2) == leases
    finally:
        (folder / "tokens.toml").write_text("".join(ENTRIES))
        file.reload_if_changed()


# By RPC with a request id: two different requests, from the ids of two messages and the leases of two others.
CALLS: dict[str, Any] = {
    "Dequeue": lambda ids, leases: ({"limit": 1}, {"limit": 2}),
    "Fail": lambda ids, leases: ({"items": [{"lease": leases[0]}]}, {"items": [{"lease": leases[1]}]}),
    "Release": lambda ids, leases: ({"leases": leases[:1]}, {"leases": leases[1:]}),
    "Extend": lambda ids, leases: (
        {"leases": leases, "duration_ms": 100_000},
        {"leases": leases, "duration_ms": 200_000},
    ),
    "Cancel": lambda ids, leases: ({"ids": ids[:1]}, {"ids": ids[1:]}),
    "Reschedule": lambda ids, leases: ({"id": ids[0], "delay_ms": 5_000}, {"id": ids[0], "delay_ms": 6_000}),
    "Redrive": lambda ids, leases: ({"id": ids[0]}, {"id": ids[1]}),
    "PurgeQueue": lambda ids, leases: ({"states": ["STATE_PENDING"]}, {"states": ["STATE_ERRORED"]}),
    "DeleteQueue": lambda ids, leases: ({"purge": True}, {"purge": False}),
}


@pytest.mark.parametrize(("first", "second"), [*product(CALLS, CALLS)])
def test_a_request_id_of_another_call_is_refused_and_changes_nothing(scene: Scene, first: str, second: str) -> None:
    scene.enqueue(*scene.ids)
    leases = scene.dequeue(scene.worker, limit=2)
    ids = [id_ for id_ in scene.ids if id_ not in {lease["id"] for lease in leases}]
    # Redrive is refused for messages in this state. The shard stores this answer, too.
    with suppress(grpc.RpcError):
        scene.call(scene.worker, first, **CALLS[first](ids, leases)[0], request_id="workerA:1")
    before = scene.records()
    refusal = scene.refused(second, **CALLS[second](ids, leases)[1], request_id="workerA:1")
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request_id belongs to another call" in refusal[1]
    assert scene.records() == before


def test_the_tests_compare_all_calls_that_have_a_request_id() -> None:
    types = [*calls.DESCRIPTOR.message_types_by_name.values(), *admin.DESCRIPTOR.message_types_by_name.values()]
    assert {f"{name}Request" for name in CALLS} == {
        type_.name for type_ in types if "request_id" in type_.fields_by_name
    }


# The shards of the first call and of the second call, and the registration shard of the slot.
@pytest.mark.parametrize("shards", [(0, 1, 2), (0, 1, 0), (3, 1, 1), (2, 2, 1)])
@pytest.mark.parametrize(("first", "second"), [*product(CALLS, CALLS)])
def test_a_request_id_of_a_call_of_another_shard_is_refused_and_changes_nothing(
    spread: Scene, first: str, second: str, shards: tuple[int, int, int]
) -> None:
    request_id = f"{spread.slot_of(shards[2])}:1"
    (ids, leases), *_, others = spread.prepare(*dict.fromkeys(shards[:2])) * 2
    # Redrive is refused for messages in this state. The shard stores this answer, too.
    with suppress(grpc.RpcError):
        spread.call(spread.worker, first, **CALLS[first](ids, leases)[0], request_id=request_id)
    before = spread.records()
    refusal = spread.refused(second, **CALLS[second](*others)[1], request_id=request_id)
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request_id belongs to another call" in refusal[1]
    assert spread.records() == before


@pytest.mark.parametrize("registrar", range(4))
@pytest.mark.parametrize("name", [*CALLS])
def test_a_repeated_call_gets_its_first_answer_whatever_its_shard(spread: Scene, name: str, registrar: int) -> None:
    [(ids, leases), _] = spread.prepare(1, 2)
    request = {**CALLS[name](ids, leases)[0], "request_id": f"{spread.slot_of(registrar)}:1"}
    if name == "Redrive":
        assert spread.refused(name, **request) == spread.refused(name, **request)
        return
    first = spread.call(spread.worker, name, **request)
    before = spread.records()
    again = spread.call(spread.worker, name, **request)
    for delivery in first.get("deliveries", []) + again.get("deliveries", []):
        assert delivery.pop("lease_ms")
    assert again == first
    assert spread.records() == before


@pytest.mark.parametrize("shards", [(0, 1, 2), (0, 1, 0), (3, 1, 1)])
def test_a_call_with_a_smaller_number_is_refused_whatever_its_shard(
    spread: Scene, shards: tuple[int, int, int]
) -> None:
    slot = spread.slot_of(shards[2])
    (ids, _), (others, _) = spread.prepare(*shards[:2])
    spread.call(spread.worker, "Cancel", ids=ids[:1], request_id=f"{slot}:5")
    before = spread.records()
    refusal = spread.refused("Cancel", ids=others[:1], request_id=f"{slot}:4")
    assert refusal[0] is grpc.StatusCode.ABORTED
    assert "a newer call of this slot was answered" in refusal[1]
    assert spread.records() == before
    # The refused call did not replace the digest of the newer call.
    refusal = spread.refused("Cancel", ids=others[:1], request_id=f"{slot}:5")
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_of_two_concurrent_calls_with_one_request_id_only_one_is_executed(spread: Scene) -> None:
    (ids, _), (others, _) = spread.prepare(0, 1)
    slot = spread.slot_of(2)

    def reschedule(item: tuple[str, int]) -> grpc.StatusCode:
        id_, sequence = item
        try:
            spread.call(spread.worker, "Reschedule", id=id_, delay_ms=60_000, request_id=f"{slot}:{sequence}")
        except grpc.RpcError as refused:
            code: grpc.StatusCode = refused.code()
            return code
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(2) as pool:
        for sequence in range(1, 30):
            answers = {*pool.map(reschedule, [(ids[0], sequence), (others[0], sequence)])}
            assert answers == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}


def test_a_call_that_was_registered_but_not_executed_is_executed_when_it_is_repeated(
    spread: Scene, tickwheel_server: PrivateServer
) -> None:
    [(ids, _)] = spread.prepare(1)
    request_id = f"{spread.slot_of(2)}:1"
    content = calls.CancelRequest(ids=ids[:1]).SerializeToString(deterministic=True)
    named = spread.named(request_id, "CancelRequest", content)
    with Tickwheel(tickwheel_server.url, namespace=spread.namespace) as tw:
        # The process of the service is killed before it sends the call to the shard of the message.
        tw._run(register_call(tw._context, "q", RequestSessions(named), [1]))
    assert spread.refused("Cancel", ids=ids[1:], request_id=request_id)[0] is grpc.StatusCode.INVALID_ARGUMENT
    answer = spread.call(spread.worker, "Cancel", ids=ids[:1], request_id=request_id)
    assert answer["changes"][0]["changed"]


@pytest.mark.parametrize("registrar", range(4))
@pytest.mark.parametrize("page_token", ["", "1:0"])
def test_a_repeated_purge_that_found_no_message_removes_no_later_message(
    spread: Scene, page_token: str, registrar: int
) -> None:
    spread.call(spread.worker, "CreateQueue")
    request = {"page_token": page_token, "request_id": f"{spread.slot_of(registrar)}:1"}
    first = spread.call(spread.worker, "PurgeQueue", **request)
    assert first == {"removed": "0", "next_page_token": "2:0" if page_token else "1:0"}
    spread.enqueue(*(ids[1] for ids in spread.ids_by_shard))
    before = spread.records()
    assert spread.call(spread.worker, "PurgeQueue", **request) == first
    assert spread.records() == before


def test_a_purge_that_was_registered_but_not_executed_is_executed_when_it_is_repeated(
    spread: Scene, tickwheel_server: PrivateServer
) -> None:
    request_id = f"{spread.slot_of(2)}:1"
    spread.call(spread.worker, "CreateQueue")
    with Tickwheel(tickwheel_server.url, namespace=spread.namespace) as tw:
        named = spread.named(request_id, "PurgeQueueRequest")
        tw._run(register_call(tw._context, "q", RequestSessions(named)))
    spread.enqueue(spread.ids_by_shard[0][0])
    assert spread.call(spread.worker, "PurgeQueue", request_id=request_id)["removed"] == "1"


def test_a_repeated_first_or_last_step_of_a_deletion_does_not_change_a_later_queue_of_the_name(spread: Scene) -> None:
    spread.enqueue(spread.ids[0])
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = []
    token = ""
    while token or not steps:
        request = {"purge": True, "page_token": token, "request_id": f"step-{len(steps)}:1"}
        steps.append((request, spread.call(spread.worker, "DeleteQueue", **request)))
        token = steps[-1][1]["next_page_token"]
    spread.enqueue(*spread.ids)
    before = spread.records(), spread.call(spread.worker, "GetQueue")
    for request, answer in (steps[0], steps[-1]):
        assert spread.call(spread.worker, "DeleteQueue", **request) == answer
    assert (spread.records(), spread.call(spread.worker, "GetQueue")) == before


def test_a_call_that_concerns_only_its_registration_shard_is_one_script_call(
    spread: Scene, tickwheel_server: PrivateServer
) -> None:
    [(ids, _)] = spread.prepare(1)
    used = []
    with tickwheel_server.client() as connected:
        for registrar in (1, 2):
            # The shard learns the version of the queue's configuration in the first call.
            for sequence in (1, 2):
                before = connected.info("commandstats")["cmdstat_evalsha"]["calls"]
                spread.call(spread.worker, "Cancel", ids=[ids[0]], request_id=f"{spread.slot_of(registrar)}:{sequence}")
                after = connected.info("commandstats")["cmdstat_evalsha"]["calls"]
            used.append(after - before)
    assert used == [1, 2]


@pytest.mark.parametrize("name", ["Cancel", "Release", "Extend", "Fail", "Dequeue"])
def test_a_call_of_several_shards_changes_nothing_if_one_shard_answered_another_call(scene: Scene, name: str) -> None:
    ids = [scene.elsewhere, scene.ids[0]]
    scene.enqueue(*ids)
    leases = [] if name in ("Cancel", "Dequeue") else scene.dequeue(scene.worker, limit=2)
    leases.sort(key=lambda lease: ids.index(lease["id"]))
    scene.call(scene.worker, "Cancel", ids=[scene.ids[0], "missing"], request_id="workerA:1")
    scene.enqueue("more")
    fields: dict[str, Any] = {
        "Cancel": {"ids": [scene.elsewhere, scene.ids[0]]},
        "Release": {"leases": leases},
        "Extend": {"leases": leases, "duration_ms": 100_000},
        "Fail": {"items": [{"lease": lease} for lease in leases]},
        "Dequeue": {"limit": 3},
    }
    before = scene.records()
    assert scene.refused(name, **fields[name], request_id="workerA:1")[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert scene.records() == before


def test_calls_of_two_kinds_with_equal_bytes_are_different_calls(scene: Scene) -> None:
    id_ = scene.ids[0]
    assert calls.CancelRequest(ids=[id_]).SerializeToString() == calls.RedriveRequest(id=id_).SerializeToString()
    scene.enqueue(id_)
    scene.call(scene.worker, "Cancel", ids=[id_], request_id="workerA:1")
    before = scene.records()
    refusal = scene.refused("Redrive", id=id_, request_id="workerA:1")
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request_id belongs to another call" in refusal[1]
    assert scene.records() == before


def test_the_slot_and_the_token_of_a_request_id_are_separate(scene: Scene, channel: grpc.Channel) -> None:
    scene.enqueue(*scene.ids[:2])
    # The names of the slot and of the token are equal if they are joined without a separator.
    tokens = {slot: generic_client(channel, token) for slot, token in (("joinedA", JOINED[0]), ("joined", JOINED[1]))}
    [first, second] = [scene.dequeue(client, f"{slot}:1") for slot, client in tokens.items()]
    assert first[0]["id"] != second[0]["id"]


def test_a_repeated_call_gets_its_first_answer(scene: Scene) -> None:
    scene.enqueue(*scene.ids)
    leases = scene.dequeue(scene.worker, limit=2)
    ids = [id_ for id_ in scene.ids if id_ not in {lease["id"] for lease in leases}]
    for n, name in enumerate(["Extend", "Fail", "Release", "Reschedule", "Cancel"]):
        fields = CALLS[name](ids, leases)[0]
        first, again = (scene.call(scene.worker, name, **fields, request_id=f"workerA:{n}") for _ in range(2))
        assert first == again, name


@pytest.mark.parametrize(("code", "state"), [(0, 7), (0, 255), (6, 2), (255, 1)])
def test_an_answer_that_is_no_result_is_an_error_of_the_caller(
    scene: Scene, tickwheel_server: PrivateServer, code: int, state: int
) -> None:
    scene.enqueue(scene.ids[0])
    scene.call(scene.worker, "Cancel", ids=[scene.ids[0]], request_id="workerA:1")
    with tickwheel_server.client() as connected:
        keys = {*connected.scan_iter(f"{scene.namespace}:*session:*")}
        digests = {key for key in keys if key.endswith(b"/0")}
        [session] = keys - digests
        # A process of an earlier version stored an answer to another kind of call, without a digest.
        connected.delete(*digests)
        connected.set(session, (1).to_bytes(8) + RESULT.pack(code, state, 1, 0, 0), ex=300)
    refusal = scene.refused("Cancel", ids=[scene.ids[0]], request_id="workerA:1")
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request_id belongs to another call" in refusal[1]
