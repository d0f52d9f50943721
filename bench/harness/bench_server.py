"""The measured server: the bundled Valkey in a temporary folder, with the memory settings of the embedded server."""

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis

from bench.harness.cpu_clock import process_cpu_us
from tickwheel.embedded import EmbeddedServer


class BenchServer:
    """A separate server for one measurement. It has an append-only file only with ``aof``."""

    def __init__(self, *, aof: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tickwheel-bench-"))
        self._server = EmbeddedServer(self.folder, appendfsync="everysec")
        self._server.open()
        self.url = self._server.url
        self.redis: Any = Redis.from_url(self.url, protocol=2)
        if not aof:
            self.redis.config_set("appendonly", "no")
        pid = self._server.pid
        if pid is None:
            raise RuntimeError(f"the server of {self.folder} has ended")
        self.pid = pid

    def cpu_us(self) -> float:
        """Return the CPU time of the server's main thread, user and system, from INFO."""
        info = self.redis.info("cpu")
        return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]) * 1e6

    def process_cpu_us(self) -> float:
        """Return the CPU time of the whole process. The kernel reports it, so this costs the server nothing."""
        return process_cpu_us(self.pid)

    def used_memory(self) -> int:
        """Return the bytes that the server's allocator has allocated."""
        return int(self.redis.info("memory")["used_memory"])

    def about(self) -> dict[str, str]:
        """Return the name and version of the server, and its allocator."""
        info = self.redis.info()
        return {
            "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}",
            "allocator": str(info["mem_allocator"]),
        }

    def close(self) -> None:
        self.redis.close()
        self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
