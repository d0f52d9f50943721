"""`tickwheel worker`: children that tasks fork."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault import forking_app
from tests.fault.worker_processes import Worker, is_process
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.tasks import Task
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NOTES = 5


@pytest.fixture
def work(tickwheel_server: PrivateServer, namespace: str, tmp_path: Path) -> Iterator[Queue]:
    forking_app.app.move(url=tickwheel_server.url, namespace=namespace)
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        run_event_process(tickwheel_server.url, namespace, tmp_path / "lock"),
    ):
        yield tickwheel.queue("work")
    forking_app.app.close()


def start_worker(server: PrivateServer, namespace: str, folder: Path, *options: str) -> Worker:
    return Worker(server.url, namespace, folder, *options, app="tests.fault.forking_app:app")


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(
    "task",
    [
        forking_app.child_returns,
        forking_app.child_exits,
        forking_app.child_fails,
        forking_app.child_of_async_task_returns,
    ],
    ids=lambda task: task.name.rpartition(".")[2],
)
def test_a_forked_child_ends_with_its_task_and_runs_no_other_message(
    work: Queue, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, task: Task[[], None], threads: str
) -> None:
    ids = [task.now().id, *(forking_app.note.now(n).id for n in range(NOTES))]
    with start_worker(tickwheel_server, namespace, tmp_path, "--threads", threads) as worker:
        for id in ids:
            eventually(lambda id=id: work.get(id).state == "completed", f"{id} is completed", 30)  # type: ignore[misc]
        [[_, child]] = worker.list_actions("child")
        eventually(lambda: not is_process(int(child)) or state(child) == "Z", "the child has ended", 20)
        assert worker.stop(30) == 0
    assert sorted(n for _, n in worker.list_actions("note")) == [str(n) for n in range(NOTES)]


def test_a_child_of_a_task_ends_with_its_process_if_the_supervisor_is_killed(
    work: Queue, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    forking_app.wait_with_child.now()
    with start_worker(tickwheel_server, namespace, tmp_path, "--drain", "100ms") as worker:
        worker.wait_until_recorded("child")
        [[_, child]] = worker.list_actions("child")
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
        eventually(lambda: not is_process(int(child)) or state(child) == "Z", "the child has ended", 20)


def state(pid: str) -> str:
    """Return the state of a process as /proc shows it: Z if it has ended, but no parent has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
