"""`tickwheel worker` as a real process, with a record that its tasks write."""

import signal
import subprocess
import sys
from pathlib import Path

from services.process import Process
from tests.support.process_records import ProcessRecords
from tests.support.wait_until import eventually

ROOT = Path(__file__).parents[2]
APP = "tests.fault.worker_app:app"


class Worker(Process):
    """A worker that is stopped at the end. Each line of its record has an action, a message id and an attempt."""

    def __init__(
        self, url: str, namespace: str, folder: Path, *options: str, app: str = APP, **environment: str
    ) -> None:
        self._records = ProcessRecords(folder)
        settings = {
            "TICKWHEEL_URL": url,
            "TICKWHEEL_NAMESPACE": namespace,
            "RECORD": str(self._records.record_path),
        }
        command = [sys.executable, "-m", "tickwheel", "worker", app, *options]
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
