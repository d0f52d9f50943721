"""With the durability `replica:N`, a client enqueues only to a queue that the replicas of the metadata shard have."""

import pytest

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.queues import ensure
from tickwheel.plan import Reply, Round

pytestmark = pytest.mark.unit

STORED = bytes(10) + QueueConfig().to_bytes()


def test_an_existing_queue_is_confirmed_once() -> None:
    context = NamespaceContext("tw", replicas=1)
    plan = ensure(context, "jobs")
    next(plan)
    barrier = plan.send([Reply(STORED), Reply(b"1")])
    assert isinstance(barrier, Round)
    assert [(request.shard, request.durable) for request in barrier.requests] == [(0, True)]
    with pytest.raises(StopIteration):
        plan.send([Reply(1)])
    with pytest.raises(StopIteration):
        next(ensure(context, "jobs"))


def test_without_replicas_nothing_is_confirmed() -> None:
    plan = ensure(NamespaceContext("tw"), "jobs")
    next(plan)
    with pytest.raises(StopIteration):
        plan.send([Reply(STORED), Reply(b"1")])
