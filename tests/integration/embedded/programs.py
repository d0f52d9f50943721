"""Programs that share a server, each in its own process, and checks of the server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

import tickwheel
from tickwheel.embedded import EmbeddedServer
from tickwheel.embedded.file_lock import is_free

PROGRAM = Path(__file__).with_name("program.py")


class Program:
    """A process that has an EmbeddedServer."""

    def __init__(self, data_dir: Path, appendfsync: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(data_dir), appendfsync],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(tickwheel.__file__).parents[1])},
        )

    def begin(self, action: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{action}\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, action: str) -> Any:
        self.begin(action)
        return self.result()

    def end(self) -> None:
        """Let the program end without closing the server."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def all_at_once(programs: Sequence[Program], action: str) -> list[Any]:
    """Start an action in all programs at once and return the results."""
    for program in programs:
        program.begin(action)
    return [program.result() for program in programs]


StartProgram = Callable[..., Program]


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def is_server_alive(data_dir: Path) -> bool:
    return not is_free(data_dir / "server.lock")


def starts(data_dir: Path) -> int:
    return (data_dir / "valkey.log").read_text().count("Valkey is starting")


def kill_server(server: EmbeddedServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
