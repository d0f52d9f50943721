"""Request ids of the service: they belong to the token, and a number of a slot stands for one call only."""

from collections.abc import Iterator
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
from tickwheel.operations.results import RESULT
from tickwheel.service.token_file import TokenFile
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

# Fixed values, because all processes of a run must collect the same tests.
WORKER, OTHER, PRODUCER, RENEWED = (f"tw_{name}-Of-Request-Ids" for name in ("a", "b", "c", "d"))
SHARDS = {"one": 1, "four": 4}
HERE = 'namespaces = ["request-ids-*"]'
ROLES = '["produce", "consume", "admin"]'
ENTRIES = [entry(WORKER, ROLES, HERE), entry(OTHER, ROLES, HERE), entry(PRODUCER, '["produce"]', HERE)]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TokenFile]:
    folder = tmp_path_factory.mktemp("tokens")
    return folder, write_token_file(folder, *ENTRIES)


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tokens: tuple[Path, TokenFile]) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, tokens=tokens[1]) as serving:
        yield serving


@pytest.fixture
def channel(service: ServiceThread) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(service.target) as opened:
        yield opened


class Scene:
    """A queue of one namespace, and the clients with each of the tokens."""

    def __init__(self, channel: grpc.Channel, server: PrivateServer, namespace: str, shards: int) -> None:
        self.namespace, self.shards, self._server = namespace, shards, server
        self.worker, self.other, self.producer = (generic_client(channel, name) for name in (WORKER, OTHER, PRODUCER))
        self.worker.call("OpenNamespace", namespace=namespace, shards=shards)
        # The ids are on one shard, so that the calls of the tests concern the same shard.
        ids = [f"m{n}" for n in range(40)]
        self.ids = [id_ for id_ in ids if self.shard(id_) == self.shard("m0")][:4]
        self.elsewhere = next((id_ for id_ in ids if self.shard(id_) != self.shard("m0")), "m0")

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
                )
                for prefix in prefixes
            ]


@pytest.fixture(params=SHARDS)
def scene(channel: grpc.Channel, tickwheel_server: PrivateServer, request: pytest.FixtureRequest) -> Iterator[Scene]:
    name = f"request-ids-{uuid4().hex}"
    yield Scene(channel, tickwheel_server, name, SHARDS[request.param])
    tickwheel_server.clear(name)


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


# By RPC: two different requests, from the ids of two messages and the leases of two others.
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
        digest, session = sorted(connected.scan_iter(f"{scene.namespace}:*session:*"), reverse=True)
        # A process of an earlier version stored an answer to another kind of call, without a digest.
        connected.delete(digest)
        connected.set(session, (1).to_bytes(8) + RESULT.pack(code, state, 1, 0, 0), ex=300)
    refusal = scene.refused("Cancel", ids=[scene.ids[0]], request_id="workerA:1")
    assert refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request_id belongs to another call" in refusal[1]
