"""First attempts: an empty answer leaves no session on the shard, and a late copy leases nothing."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tickwheel.operations.sessions import ClientSession

pytestmark = pytest.mark.integration


class Caller:
    """Requests messages of one queue under request ids."""

    def __init__(self, generic_client: GenericClient, server: Any, namespace: str, shards: int) -> None:
        self._stranger = generic_client
        self._server = server
        self._where = {"namespace": namespace, "queue": "q"}
        generic_client.call("OpenNamespace", namespace=namespace, shards=shards)
        generic_client.call("CreateQueue", **self._where)

    def enqueue(self, *ids: str) -> None:
        self._stranger.call("EnqueueBatch", **self._where, messages=[{"id": id_} for id_ in ids])

    def ask(self, sequence: int, *, first: bool, **more: Any) -> list[str]:
        """Return the ids of the delivered messages."""
        fields = {"request_id": f"mine:{sequence}", "first_attempt": first, **more}
        return [
            delivery["lease"]["id"]
            for delivery in self._stranger.call("Dequeue", **self._where, **fields)["deliveries"]
        ]

    def lose_record(self, id_: str) -> None:
        """Delete the record of a message. Its index entry stays."""
        for key in self._server.scan_iter(f"{self._where['namespace']}:*:messages"):
            for field in self._server.hkeys(key):
                if field.endswith(id_.encode()):
                    self._server.hdel(key, field)

    def script_calls(self) -> int:
        """Return the number of script calls."""
        return int(self._server.info("commandstats")["cmdstat_evalsha"]["calls"])

    def sessions(self) -> int:
        return sum(key.endswith(b"session:q/mine") for key in self._server.scan_iter(f"*{self._where['namespace']}*"))


@pytest.fixture(params=[1, 3], ids=["1-shard", "3-shards"])
def caller(
    request: pytest.FixtureRequest, real_time_service: ServiceThread, server: Any, namespace: str
) -> Iterator[Caller]:
    with grpc.insecure_channel(real_time_service.target) as channel:
        yield Caller(GenericClient(channel), server, namespace, request.param)


@pytest.mark.parametrize("wait_ms", [0, 50])
@pytest.mark.parametrize("consistency", ["CONSISTENCY_HEADS", "CONSISTENCY_EXACT"])
def test_a_first_attempt_that_finds_nothing_leaves_no_session(caller: Caller, wait_ms: int, consistency: str) -> None:
    for sequence in range(1, 4):
        assert caller.ask(sequence, first=True, wait_ms=wait_ms, consistency=consistency) == []
    assert caller.sessions() == 0
    assert caller.ask(4, first=False, wait_ms=wait_ms, consistency=consistency) == []
    assert caller.sessions() == 1


def test_a_first_attempt_that_arrives_after_its_repetition_leases_nothing(caller: Caller) -> None:
    assert caller.ask(1, first=False) == []
    caller.enqueue("a", "b", "c")
    assert caller.ask(1, first=True) == []
    assert sorted(caller.ask(2, first=True, limit=10)) == ["a", "b", "c"]


def test_a_first_attempt_that_arrives_after_its_repetition_gets_the_same_answer(caller: Caller) -> None:
    caller.enqueue("a", "b", "c", "d")
    taken = caller.ask(1, first=False, limit=2)
    assert caller.ask(1, first=True, limit=2) == taken


def test_a_first_attempt_is_refused_after_a_later_one_that_left_a_session(caller: Caller) -> None:
    assert caller.ask(2, first=False) == []
    caller.enqueue("a", "b", "c")
    with pytest.raises(grpc.RpcError, match="a newer call of this slot"):
        caller.ask(1, first=True)


def test_the_repetition_of_a_first_attempt_returns_the_same_messages(caller: Caller) -> None:
    caller.enqueue("a", "b", "c", "d")
    taken = caller.ask(1, first=True, limit=2)
    assert len(taken) == 2
    assert caller.ask(1, first=False, limit=2) == taken


def test_first_attempts_at_an_empty_queue_call_no_script(caller: Caller) -> None:
    for sequence in range(1, 4):
        assert caller.ask(sequence, first=True) == []
    before = caller.script_calls()
    for sequence in range(4, 54):
        assert caller.ask(sequence, first=True) == []
    assert caller.script_calls() == before


def test_a_request_that_the_service_repeats_to_the_shard_leaves_a_session() -> None:
    slot = ClientSession("mine")
    slot.pin_sequence(0, final=True, is_first=True)
    _, first, again = slot.begin_call("tw", 0)
    keeps_empty, may_be_a_repeat = 1, 4
    assert first[-1] & (keeps_empty | may_be_a_repeat) == 0
    assert again[-1] & (keeps_empty | may_be_a_repeat) == keeps_empty | may_be_a_repeat


def test_requests_after_an_unanswered_call_are_first_attempts_again_once_a_call_of_their_queue_is_answered() -> None:
    slot = ClientSession("mine")
    assert slot.begin_rpc("q")
    slot.rpc_answered("q")
    assert slot.begin_rpc("q")
    # This call is not answered.
    assert not slot.begin_rpc("q")
    assert slot.begin_rpc("other")
    slot.rpc_answered("other")
    assert not slot.begin_rpc("q")
    slot.rpc_answered("q")
    assert slot.begin_rpc("q")


def test_a_repetition_gets_the_answer_of_a_first_attempt_that_met_an_entry_without_a_message(caller: Caller) -> None:
    caller.enqueue("lost")
    caller.enqueue("good")
    caller.lose_record("lost")
    assert caller.ask(1, first=True, limit=1) == ["good"]
    assert caller.ask(1, first=False, limit=1) == ["good"]


def test_a_first_attempt_that_arrives_after_its_repetition_leases_nothing_more(caller: Caller) -> None:
    caller.enqueue("a", "b", "c")
    taken = caller.ask(1, first=False, limit=10)
    assert sorted(taken) == ["a", "b", "c"]
    caller.enqueue("d", "e")
    assert caller.ask(1, first=True, limit=10) == taken
    assert sorted(caller.ask(2, first=False, limit=10)) == ["d", "e"]
