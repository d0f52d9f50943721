"""A task whose worker cannot renew its lease learns that the lease is lost, or ends with its process in time."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

import pytest

from tests.fault import celery_lease_app, lease_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.worker_processes import Worker
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.tasks import Task
from tickwheel.testing import PrivateServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

APP = "tests.fault.lease_app:app"
Start = Callable[..., Worker]


@pytest.fixture
def orders(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    lease_app.app.move(url=tickwheel_server.url, namespace=namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel.create_queue("orders", **lease_app.app.queues["orders"].config)
    lease_app.app.close()


@pytest.fixture
def start(namespace: str, tmp_path: Path) -> Start:
    """Return a function that makes a worker of the server with a URL, each with a log and a record of its own."""
    numbers = count()

    def make(url: str, *options: str, app: str = APP) -> Worker:
        folder = tmp_path / f"worker-{next(numbers)}"
        folder.mkdir()
        return Worker(url, namespace, folder, *options, app=app)

    return make


@contextmanager
def driven(server: PrivateServer, namespace: str, folder: Path) -> Iterator[None]:
    """Let an event process end the leases."""
    with EventProcessChild(server.url, namespace, folder / "lock"):
        yield


def runs(*workers: Worker) -> list[tuple[float, float]]:
    """Return the first and the last time that each run of a task has recorded, in the order of the first times."""
    times: dict[tuple[str, str], list[float]] = {}
    for worker in workers:
        for _, id, attempt, at in worker.list_actions("runs"):
            times.setdefault((id, attempt), []).append(float(at))
    return sorted((min(of_run), max(of_run)) for of_run in times.values())


@pytest.mark.parametrize(
    ("task", "options"),
    [(lease_app.run_until, ()), (lease_app.run_until, ("--threads", "2")), (lease_app.await_until, ())],
    ids=["one-task", "threads", "async"],
)
def test_tasks_of_a_customer_do_not_overlap_if_a_supervisor_is_killed(
    orders: Queue,
    start: Start,
    tickwheel_server: PrivateServer,
    namespace: str,
    tmp_path: Path,
    task: Task[..., object],
    options: tuple[str, ...],
) -> None:
    go, url = tmp_path / "go", tickwheel_server.url
    ids = [task.now("42", str(go)).id for _ in range(2)]
    with driven(tickwheel_server, namespace, tmp_path), start(url, "--drain", "5m", *options) as first:
        first.wait_until_recorded("runs")
        with start(url, *options) as second:
            eventually(lambda: "tasks: " in second.log, f"the second worker has started\n{second.log}", 30)
            first.send_signal(signal.SIGKILL)
            first.wait(10)
            # Long enough that the first process would run on meanwhile.
            second.wait_until_recorded("runs", 50)
            go.touch()
            for id in ids:
                eventually(lambda id=id: orders.get(id, "42").state == "completed", f"{id} ends", 30)  # type: ignore[misc]
            assert all(end < begin for (_, end), (begin, _) in pairwise(runs(first, second))), runs(first, second)
        assert "because its supervisor has ended and the lease of a running task runs out" in first.log


def check_loss_and_return(worker: Worker, proxy: FlakyProxy, go: Path, state: Callable[[], tuple[str, int]]) -> None:
    """Stall the connection of the worker until its task has noticed that the lease is over, and then go on.

    Nobody drives, so that the server keeps the lease after its end, and the late renewal succeeds.
    """
    worker.wait_until_recorded("runs")
    assert not worker.list_actions("lost")
    stalled_at = time.monotonic()
    proxy.stall()
    worker.wait_until_recorded("lost")
    [[*_, lost_at]] = worker.list_actions("lost")
    # A renewal of the same moment may have passed the proxy.
    assert float(lost_at) - stalled_at < lease_app.LEASE.total_seconds() + 2
    proxy.go_on()
    worker.wait_until_recorded("held")
    go.touch()
    eventually(lambda: state() == ("completed", 1), f"the task ends\n{worker.log}", 30)


@pytest.mark.parametrize("task", [lease_app.run_until, lease_app.await_until], ids=["sync", "async"])
def test_a_lease_that_cannot_be_renewed_counts_as_lost_until_a_renewal_succeeds(
    orders: Queue, start: Start, proxy: FlakyProxy, tmp_path: Path, task: Task[..., object]
) -> None:
    go = tmp_path / "go"
    sent = task.now("42", str(go))

    def state() -> tuple[str, int]:
        message = orders.get(sent.id, "42")
        return message.state, message.attempt

    with start(proxy.url) as worker:
        check_loss_and_return(worker, proxy, go, state)


def test_a_moved_task_of_celery_learns_that_its_lease_is_over(
    start: Start, proxy: FlakyProxy, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        celery_lease_app.app.move(url=tickwheel_server.url, namespace=namespace)
        celery_lease_app.app.route("orders.run_until", to="tickwheel")
        sent = celery_lease_app.run_until.delay(str(go))

        def state() -> tuple[str, int]:
            message = tickwheel.queue("celery").get(sent.id)
            return message.state, message.attempt

        with start(proxy.url, app="tests.fault.celery_lease_app:app") as worker:
            check_loss_and_return(worker, proxy, go, state)
        celery_lease_app.app.close()


def test_a_task_learns_that_its_service_is_unreachable_before_another_worker_takes_over(
    orders: Queue, start: Start, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    lease_app.run_until.now("42", str(go))
    with (
        driven(tickwheel_server, namespace, tmp_path),
        ServiceThread(tickwheel_server.url) as service,
        start(service.url) as first,
    ):
        first.wait_until_recorded("runs")
        with start(tickwheel_server.url) as second:
            eventually(lambda: "tasks: " in second.log, f"the second worker has started\n{second.log}", 30)
            service.stop()
            second.wait_until_recorded("runs")
            first.wait_until_recorded("lost")
            [[_, _, attempt, lost_at]] = first.list_actions("lost")
            [(taken_at, _)] = runs(second)
            # The task asks a hundred times a second.
            assert (attempt, float(lost_at) < taken_at + 0.5) == ("1", True)
            eventually(lambda: "cannot renew 1 leases" in first.log, f"the failure is logged\n{first.log}", 30)
            go.touch()
            first.send_signal(signal.SIGTERM)
