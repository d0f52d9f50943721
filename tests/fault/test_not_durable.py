"""With `replica:1`, a mutating call returns only if the replica has its changes, and raises `NotDurable` otherwise."""

import os
from collections.abc import Iterator

import pytest

from services.replica_set import ReplicaSet
from tests.fault.mutating_calls import CALLS, Call, PreparedNamespace, prepare_namespace
from tickwheel import NotDurable, Tickwheel
from tickwheel.redis import replies

pytestmark = pytest.mark.fault

CONFIRMED = (
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
    "block a queue",
)


@pytest.fixture
def prepared(replica_set: ReplicaSet) -> Iterator[PreparedNamespace]:
    namespace = f"durable-{os.urandom(6).hex()}"
    with Tickwheel(replica_set.url, namespace=namespace, shards=2, durability="replica:1") as tickwheel:
        yield prepare_namespace(tickwheel)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_raises_not_durable_while_the_replica_does_not_confirm_it(
    call: Call, prepared: PreparedNamespace, replica_set: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A frozen replica never confirms, so a short wait is enough.
    monkeypatch.setattr(replies, "_WAIT_MS", 50)
    with replica_set.replicas[0].paused(), pytest.raises(NotDurable, match="0 of 1 replicas"):
        call.run(prepared)


@pytest.mark.parametrize("name", CONFIRMED)
def test_a_call_returns_if_the_replica_confirms_it(name: str, prepared: PreparedNamespace) -> None:
    CALLS[name].run(prepared)
