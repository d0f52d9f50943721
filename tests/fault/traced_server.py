"""A server whose writes and fsyncs are traced, so that a test can simulate a power loss."""

import re
import shutil
from pathlib import Path

from services.apt import find_or_install
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually

# Patterns for lines of strace: a write with its file and number of bytes, and an fsync of the file.
_WRITTEN = re.compile(r" p?writev?(?:64)?\(\d+<(?P<file>[^>]*\.incr\.aof)>.* = (?P<bytes>\d+)$")
_SYNCED = re.compile(r" f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)>\)? .*= 0$")
_SYNC_BEGINS = re.compile(r"^(?P<thread>\d+) .*f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)> <unfinished")
_SYNC_ENDS = re.compile(r"^(?P<thread>\d+) .*<\.\.\. f(?:data)?sync resumed>.* = 0$")
# With -D, the server and not strace is the child of this process, and strace ends with the server.
_TRACED = ["-D", "-f", "-y", "-s", "0", "-e", "trace=write,writev,pwrite64,fsync,fdatasync", "-o"]


class TracedServer(ValkeyServer):
    """A server under strace. Each start begins a new trace."""

    def __init__(self, folder: Path, appendfsync: str) -> None:
        super().__init__("valkey", folder, {"appendfsync": appendfsync})
        self._trace = folder / "trace"
        strace = find_or_install(lambda: shutil.which("strace"), "strace")
        self.command = [strace, *_TRACED, str(self._trace), *self.command]

    def lose_power(self) -> int:
        """Kill the server, truncate its file to the last completed fsync, and return the number of lost bytes."""
        self.kill()
        eventually(
            lambda: self._trace.read_text().rstrip().endswith("+++ killed by SIGKILL +++"), "the trace is complete"
        )
        [file] = self.folder.glob("appendonlydir/*.incr.aof")
        written = synced = 0
        syncing: dict[str, int] = {}
        for line in self._trace.read_text().splitlines():
            if match := _WRITTEN.search(line):
                written += int(match["bytes"])
            elif match := _SYNC_BEGINS.search(line):
                syncing[match["thread"]] = written
            elif match := _SYNC_ENDS.search(line):
                synced = max(synced, syncing.pop(match["thread"], synced))
            elif _SYNCED.search(line):
                synced = written
        size = file.stat().st_size
        with file.open("r+b") as opened:
            opened.truncate(synced)
        return size - synced
