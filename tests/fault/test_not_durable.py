"""With `replica:1`, a mutating call returns only if the replica has its changes, and raises `NotDurable` otherwise."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from services.replica_set import ReplicaSet
from tests.fault.mutating_calls import CALLS, Call, PreparedNamespace, prepare_namespace
from tests.integration.service_thread import ServiceThread
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


# Calls that change nothing if they are repeated.
REPEATED: dict[str, Callable[[PreparedNamespace], object]] = {
    "create a queue": lambda on: on.tickwheel.create_queue("new", max_attempts=7),
    "update a queue": lambda on: on.tickwheel.create_queue("work", update=True, max_attempts=7),
    "block a queue": lambda on: on.work.block(dequeue=True),
    "purge a queue": lambda on: on.work.purge(["errored"]),
}


@pytest.mark.parametrize("over", ["redis", "grpc"])
@pytest.mark.parametrize("call", REPEATED.values(), ids=REPEATED)
def test_a_repeated_call_is_confirmed_although_nothing_is_left_to_change(
    call: Callable[[PreparedNamespace], object],
    over: str,
    prepared: PreparedNamespace,
    replica_set: ReplicaSet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "_WAIT_MS", 50)
    namespace = prepared.tickwheel._context.namespace
    with ExitStack() as stack:
        url, durability = replica_set.url, "replica:1"
        if over == "grpc":
            url = stack.enter_context(ServiceThread(url, durability=durability)).url
        tickwheel = stack.enter_context(
            Tickwheel(url, namespace=namespace, durability=durability if over == "redis" else None)
        )
        on = replace(prepared, tickwheel=tickwheel, work=tickwheel.queue("work"))
        with replica_set.replicas[0].paused():
            for _ in range(3):
                with pytest.raises(NotDurable, match="0 of 1 replicas"):
                    call(on)
        monkeypatch.undo()
        call(on)
