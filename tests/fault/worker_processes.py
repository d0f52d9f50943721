"""`tickwheel worker` as a real process, with a namespace, and a record of what its tasks did."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.process_records import ProcessRecords
from tests.support.wait_until import eventually

ROOT = Path(__file__).parents[2]
APP = "tests.fault.worker_app:app"


class Worker(ProcessRecords):
    """Runs until it is told to end; with it end its processes. Of a line in the record: what, id, attempt."""

    def __init__(
        self, url: str, namespace: str, folder: Path, *options: str, app: str = APP, **environment: str
    ) -> None:
        super().__init__(folder)
        said = {"TICKWHEEL_URL": url, "TICKWHEEL_NAMESPACE": namespace, "RECORD": str(self.record_path)}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tickwheel", "worker", app, *options],
                cwd=ROOT,
                stderr=log,
                start_new_session=True,
                env=os.environ | said | environment,
            )

    def did(self, what: str) -> list[list[str]]:
        return [line for line in self.record if line[0] == what]

    def wait_until_recorded(self, what: str, times: int = 1) -> None:
        eventually(lambda: len(self.did(what)) >= times, f"{what}, {times} times, in {self.record}\n{self.log}", 30)

    @property
    def children(self) -> list[int]:
        """The worker processes."""
        listed = subprocess.run(["pgrep", "-P", str(self.process.pid)], stdout=subprocess.PIPE, check=False)
        return [int(each) for each in listed.stdout.split()]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, within: float = 30.0) -> int:
        """Its exit code after SIGTERM."""
        self.process.terminate()
        return self.process.wait(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGTERM)
            self.process.wait(30)
