"""`tickwheel worker` on a host whose threads or open files are used up for a while."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import Worker, WorkerDeployment, supervisor_config
from tests.support.children import children_of
from tests.support.refused_threads import no_more_threads
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.worker.stats import Stats
from tickwheel.worker.supervisor import Supervisor

pytestmark = pytest.mark.fault


@contextmanager
def no_more_files(worker: Worker) -> Iterator[None]:
    """Let each opening of a file in the supervisor fail."""
    normal = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, normal[1]))
    try:
        yield
    finally:
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, normal)


def shared_memories() -> list[str]:
    """Return the descriptors of shared memory that this program has open."""
    return [fd for fd in os.listdir("/proc/self/fd") if "memfd:tickwheel" in os.path.realpath(f"/proc/self/fd/{fd}")]


def test_a_process_that_the_supervisor_cannot_watch_is_killed_and_started_again(
    deployment: WorkerDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    config = supervisor_config(deployment.url, deployment.namespace)
    stats, before, others = Stats(), shared_memories(), children_of(os.getpid())
    supervisor = Supervisor(config, 1, stats)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    try:
        thread.start()
        eventually(lambda: supervisor._was_ready and supervisor._client, "the process works", 30)
        [process] = supervisor._processes
        assert process is not None
        with no_more_threads():
            process.popen.kill()
            eventually(lambda: "cannot start a process: can't start new thread" in caplog.text, "the start fails")
            eventually(lambda: children_of(os.getpid()) <= others, "the process that could not be watched has ended")
        deployment.wait_for_state(deployment.send(worker_app.double, 1), "completed")
        assert stats.processes == 1
    finally:
        supervisor.stop()
        thread.join(30)
    assert not thread.is_alive()
    assert children_of(os.getpid()) <= others
    assert shared_memories() == before


def test_a_worker_drives_the_wheel_of_its_embedded_server_even_if_it_cannot_connect_at_first(tmp_path: Path) -> None:
    data_dir, loading = tmp_path / "data", tmp_path / "loading"
    loading.touch()
    worker_app.app.move(data_dir=data_dir, namespace="embedded", drive=False)
    try:
        with (
            Tickwheel(data_dir=data_dir, namespace="embedded", drive=False) as tickwheel,
            Worker("", "embedded", tmp_path, "--data-dir", str(data_dir), LOAD_WHILE=str(loading)) as worker,
        ):
            worker.wait_until_recorded("loading")
            with no_more_files(worker):
                loading.unlink()
                eventually(lambda: "cannot renew leases yet, retrying" in worker.log, "the connection fails", 30)
            id = worker_app.double.later(timedelta(milliseconds=100), 1).id
            queue = tickwheel.queue("work")
            eventually(lambda: queue.get(id).state == "completed", f"{id} is completed\n{worker.log}", 40)
            assert worker.stop(30) == 0
    finally:
        worker_app.app.close()
