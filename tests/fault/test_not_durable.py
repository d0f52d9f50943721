"""With `replica:1` no mutating call is answered before the replica has what it did, or else it is NotDurable."""

import os
from collections.abc import Iterator

import pytest

from services.replica_set import ReplicaSet
from tests.fault.mutating_calls import CALLS, Call, PreparedNamespace, prepare_namespace
from tickwheel import NotDurable, Tickwheel
from tickwheel.redis import replies

pytestmark = pytest.mark.fault

DONE = (
    "enqueue",
    "dequeue",
    "complete",
    "fail",
    "release",
    "extend",
    "reschedule",
    "redrive",
    "cancel",
    "create a queue",
    "block",
)


@pytest.fixture
def prepared(replica_set: ReplicaSet) -> Iterator[PreparedNamespace]:
    namespace = f"durable-{os.urandom(6).hex()}"
    with Tickwheel(replica_set.url, namespace=namespace, shards=2, durability="replica:1") as tickwheel:
        yield prepare_namespace(tickwheel)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_is_not_durable_while_the_replica_does_not_confirm_it(
    call: Call, prepared: PreparedNamespace, replica_set: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is frozen confirms nothing, however long one waits.
    monkeypatch.setattr(replies, "_WAIT_MS", 50)
    with replica_set.replicas[0].paused(), pytest.raises(NotDurable, match="0 of 1 replicas"):
        call.run(prepared)


@pytest.mark.parametrize("name", DONE)
def test_a_call_is_durable_once_the_replica_confirms_it(name: str, prepared: PreparedNamespace) -> None:
    CALLS[name].run(prepared)
