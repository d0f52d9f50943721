"""Calls that wait in a worker for their only run are not lost if the whole worker is killed."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from celery.exceptions import WorkerLostError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually

pytestmark = [
    pytest.mark.integration,
    # Celery's result backend calls a method of redis-py that is deprecated.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]
QUEUE = "batched"


@pytest.fixture(params=["redis", "grpc"])
def worker_url(deployment: Shop, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "redis":
        yield deployment.url
    else:
        with ServiceThread(deployment.url) as service:
            yield service.url


def test_a_call_that_may_run_once_runs_although_the_worker_that_had_taken_it_was_killed(
    deployment: Shop, worker_url: str
) -> None:
    for task in ("shop.once", "shop.note"):
        route(task, "tickwheel")
    # After these short calls, the worker takes more than one call: here one, then two, then the four others.
    for _ in range(3):
        shop.note.apply_async(("short",), queue=QUEUE, priority=0)
    # The least urgent priority, so that the other call is the first of the batch.
    waiting = [shop.once.apply_async((), queue=QUEUE, priority=9) for _ in range(3)]
    begun = shop.once.apply_async((), {"waits": True}, queue=QUEUE, priority=0)
    messages = deployment.tickwheel.queue(QUEUE)
    with ExitStack() as processes:
        processes.enter_context(deployment.event_process())
        killed = processes.enter_context(deployment.tickwheel_worker(url=worker_url))
        eventually(lambda: deployment.ran(begun.id)[begun.id], f"the first call runs: {deployment.log}", 40)
        eventually(
            lambda: {messages.get(call.id).state for call in waiting} == {"pending"},
            f"the calls that wait are released: {deployment.log[-2_000:]}",
        )
        [pid] = [int(line[4]) for line in deployment.record if line[2] == begun.id]
        # The supervisor must not notice the death of its process: no part of the worker survives.
        killed.pause()
        os.kill(pid, signal.SIGKILL)
        killed.kill()
        processes.enter_context(deployment.tickwheel_worker(url=worker_url))
        with pytest.raises(WorkerLostError, match="its lease ended, and its worker reported nothing"):
            begun.get(timeout=60)
        assert [call.get(timeout=60) for call in waiting] == ["once"] * 3
        ids = [call.id for call in waiting]
        assert deployment.ran(begun.id, *ids) == {id_: ["tickwheel"] for id_ in (begun.id, *ids)}
        assert {deployment.ends(id_, QUEUE).attempt for id_ in ids} == {1}
