"""`tickwheel serve` as a process of its own: what it takes of the machine, and all that it logs."""

import subprocess
import sys
import threading
from pathlib import Path

from tests.support.wait_until import eventually

_ENDS_S = 30


class ServiceProcess:
    """Serves from the start to the end of a ``with`` statement."""

    def __init__(self, url: str, *options: str) -> None:
        command = [sys.executable, "-m", "tickwheel", "serve", "--url", url, "--listen", "127.0.0.1:0", *options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self._lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.url = ""

    def __enter__(self) -> "ServiceProcess":
        eventually(lambda: self.url or self._process.poll() is not None, "it serves", 60)
        assert self.url, self.log
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_ENDS_S)
        finally:
            self._process.kill()
            self._reading.join(_ENDS_S)

    @property
    def target(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def rss_kb(self) -> int:
        """The memory that it has, in KiB."""
        return self._status("VmRSS")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if line.startswith("serving "):
                self.url = line.split()[1]
        self._process.stderr.close()
