"""A server whose writes and fsyncs are traced, so that a power loss can be played: what no fsync covered is cut off."""

import re
import shutil
from pathlib import Path

from services.apt import find_or_install
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually

# Of a line of strace: the file, how many bytes were written to it, or that it was brought to disk.
_WRITTEN = re.compile(r" p?writev?(?:64)?\(\d+<(?P<file>[^>]*\.incr\.aof)>.* = (?P<bytes>\d+)$")
_SYNCED = re.compile(r" f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)>\)? .*= 0$")
_SYNC_BEGINS = re.compile(r"^(?P<thread>\d+) .*f(?:data)?sync\(\d+<(?P<file>[^>]*\.incr\.aof)> <unfinished")
_SYNC_ENDS = re.compile(r"^(?P<thread>\d+) .*<\.\.\. f(?:data)?sync resumed>.* = 0$")
# -D: the server is our child, and strace ends with it.
_TRACED = ["-D", "-f", "-y", "-s", "0", "-e", "trace=write,writev,pwrite64,fsync,fdatasync", "-o"]


class TracedServer(ValkeyServer):
    """A server under strace, which begins its trace anew with each start."""

    def __init__(self, folder: Path, appendfsync: str) -> None:
        super().__init__("valkey", folder, {"appendfsync": appendfsync})
        self._trace = folder / "trace"
        strace = find_or_install(lambda: shutil.which("strace"), "strace")
        self.command = [strace, *_TRACED, str(self._trace), *self.command]

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
