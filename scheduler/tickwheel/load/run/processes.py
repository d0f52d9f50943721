"""Starts and controls the processes of a run, and reads their output."""

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tickwheel.errors import TickwheelError
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.python_command import python_module
from tickwheel.runtime.signals import signal_name

_READY_S, _STOP_S = 60.0, 30.0
# Limit for one line; the measurements of a process are one line.
_LINE_BYTES = 256 * 1024 * 1024


class LoadProcesses:
    """Runs the processes during an ``async with`` block. All of them end with the block, even after an error."""

    def __init__(self, jobs: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
        self._jobs = jobs
        self._environment = os.environ | dict(environment)
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._ready = 0
        self._all_ready = asyncio.Event()
        self.progress: dict[str, dict[str, Any]] = {}
        """The last progress report of each process, by its name."""
        self.results: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []

    async def __aenter__(self) -> Self:
        for job in self._jobs:
            process = await asyncio.create_subprocess_exec(
                *python_module("tickwheel.load.run.process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=_LINE_BYTES,
                # Ctrl-C must reach only the parent, which then stops the processes.
                start_new_session=True,
            )
            self._processes.append(process)
            self._write(process, json.dumps(job))
            self._readers.append(asyncio.create_task(self._read_output(process, job["name"])))
        try:
            await asyncio.wait_for(self._all_ready.wait(), _READY_S)
        except TimeoutError as error:
            self.problems.append(f"not ready within {_READY_S:.0f} s")
            raise TickwheelError(f"the processes of the load: {'; '.join(self.problems)}") from error
        finally:
            if self.problems:
                await self._end()
        if self.problems:
            raise TickwheelError(f"the processes of the load: {'; '.join(self.problems)}")
        return self

    def begin(self, start: float) -> None:
        """Let all processes start at a moment of this host's monotonic clock."""
        for process in self._processes:
            self._write(process, repr(start))

    async def stop_and_collect(self) -> None:
        """Stop all processes and wait for their measurements. A process that does not answer within 30 s is ignored."""
        for process in self._processes:
            self._write(process, "stop")
        await asyncio.wait(self._readers, timeout=_STOP_S)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _read_output(self, process: asyncio.subprocess.Process, name: str) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            document = decode_json(line)
            if "ready" in document:
                self._ready += 1
                if self._ready == len(self._jobs):
                    self._all_ready.set()
            elif "result" in document:
                self.results[name] = document["result"]
            else:
                self.progress[name] = document
        code = await process.wait()
        if name not in self.results:
            self.problems.append(f"{name} ended with {_exit(code)} before it reported its measurements")
            self._all_ready.set()

    @staticmethod
    def _write(process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        # The end of a process is detected in `_read_output`.
        with suppress(ConnectionError, RuntimeError):
            process.stdin.write(f"{line}\n".encode())

    async def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        if self._readers:
            await asyncio.wait(self._readers, timeout=_STOP_S)
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)


def _exit(code: int) -> str:
    return signal_name(-code) if code < 0 else f"exit code {code}"
