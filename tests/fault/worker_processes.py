"""`tickwheel worker` as a real process, with a record that its tasks write."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.process import Process
from tests.fault import worker_app
from tests.support.event_process_thread import run_event_process
from tests.support.process_records import ProcessRecords
from tests.support.wait_until import eventually
from tickwheel import MessageView, Tickwheel
from tickwheel.tasks import Task
from tickwheel.worker.process import ProcessConfig

ROOT = Path(__file__).parents[2]
APP = "tests.fault.worker_app:app"


class Worker(Process):
    """A worker that is stopped at the end. Each line of its record has an action, a message id and an attempt.

    ``drive`` is the option `--drive`. By default, an event process of the test drives, unless the server is embedded.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        folder: Path,
        *options: str,
        app: str = APP,
        drive: str = "",
        **environment: str,
    ) -> None:
        self._records = ProcessRecords(folder)
        settings = {
            "TICKWHEEL_URL": url,
            "TICKWHEEL_NAMESPACE": namespace,
            "RECORD": str(self._records.record_path),
        }
        command = [sys.executable, "-m", "tickwheel", "worker", app, *options]
        command += ["--drive", drive or ("never" if url else "auto")]
        super().__init__("worker", command, folder, environment=settings | environment, cwd=ROOT)

    @property
    def record(self) -> list[list[str]]:
        """Return the words of each line of the record."""
        return self._records.record

    def list_actions(self, action: str) -> list[list[str]]:
        """Return the lines of one action."""
        return [line for line in self.record if line[0] == action]

    def wait_until_recorded(self, action: str, times: int = 1) -> None:
        """Wait until the record has ``times`` lines of the action."""
        label = f"{action}, {times} times, in {self.record}\n{self.log}"
        eventually(lambda: len(self.list_actions(action)) >= times, label, 30)

    @property
    def children(self) -> list[int]:
        """Return the pids of the worker processes."""
        pids = subprocess.run(["pgrep", "-P", str(self.pid)], stdout=subprocess.PIPE, check=False).stdout
        return [int(pid) for pid in pids.split()]

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            # The second signal ends the wait for running tasks.
            self.send_signal(signal.SIGTERM)
        self.stop(30)


class WorkerDeployment:
    """A namespace with an event process. The app of the worker sends to the namespace."""

    def __init__(self, url: str, namespace: str, folder: Path, tickwheel: Tickwheel) -> None:
        self.url, self.namespace, self.folder, self.tickwheel = url, namespace, folder, tickwheel
        self.sent: dict[str, Task[..., object]] = {}

    def worker(self, *options: str, **environment: str) -> Worker:
        return Worker(self.url, self.namespace, self.folder, *options, **environment)

    def send(self, task: Task[..., object], *args: object) -> str:
        result = task.now(*args)
        self.sent[result.id] = task
        return result.id

    def message(self, id: str) -> MessageView:
        return self.tickwheel.queue(self.sent[id].queue).get(id)

    def wait_for_state(self, id: str, state: str, within: float = 30.0, queue: str | None = None) -> MessageView:
        source = self.tickwheel.queue(self.sent[id].queue if queue is None else queue)
        eventually(lambda: source.get(id).state == state, f"{id} becomes {state}; now: {source.get(id)}", within, 0.01)
        return source.get(id)


def supervisor_config(url: str, namespace: str, app: str = APP) -> ProcessConfig:
    """Return the configuration of a supervisor that runs in the process of the test."""
    return ProcessConfig(
        app=app,
        shared_state_fd=-1,
        report_fd=-1,
        consumers=1,
        selector="lottery",
        queues=None,
        client_options={"url": url, "namespace": namespace},
        timeout_s=None,
        default_timeout_s=None,
        memory_limit=None,
        drain_s=20.0,
        json=False,
        verbose=False,
    )


@contextmanager
def deploy_workers(url: str, namespace: str, folder: Path) -> Iterator[WorkerDeployment]:
    worker_app.app.move(url=url, namespace=namespace)
    with Tickwheel(url, namespace=namespace) as tickwheel, run_event_process(url, namespace, folder / "lock"):
        yield WorkerDeployment(url, namespace, folder, tickwheel)
    worker_app.app.close()


def is_process(pid: int) -> bool:
    """Return whether a process with this pid exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
