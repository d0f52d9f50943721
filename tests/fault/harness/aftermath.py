"""Tests on a run's data, or on a copy of the data, after all messages have ended."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from services.process import ServiceError
from services.stepped_clock import step_clock
from services.valkey import ValkeyServer
from tests.fault.harness.leftovers import of_no_messages
from tests.fault.harness.run_evidence import Violation
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tickwheel import Tickwheel, TickwheelError
from tickwheel.doctor import audit

_COPIES = 12
_CUT_BYTES = 4_096
# Longer than the retention of every message, and the lifetime of every session.
_RETENTION_S = 360
_PASSES_S = 60.0


@dataclass(slots=True)
class Aftermath:
    """The result of a test on the data: the number of faults, their marks, and violations."""

    faults: int = 0
    marks: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


def cut_file(system: SystemUnderTest) -> Aftermath:
    """Cut up to 4 KiB from the end of the append-only file: each transition must be complete or absent."""
    chance, aftermath = random.Random(system.plan.seed), Aftermath(_COPIES)
    for n in range(_COPIES):
        cut = chance.randint(0, _CUT_BYTES)
        with _copy(system, n) as (server, file):
            os.truncate(file, max(file.stat().st_size - cut, 0))
            server.start()
            with _opened(server) as tickwheel:
                findings = tickwheel._run(audit(tickwheel._context))
        aftermath.violations += [Violation("I4", f"cut by {cut} bytes: {finding}") for finding in findings]
    aftermath.marks.append(f"{_COPIES} copies cut by up to {_CUT_BYTES} bytes")
    return aftermath


def flip_byte(system: SystemUnderTest) -> Aftermath:
    """Change one byte of the append-only file: the server rejects it, the audit reports it, or no state differs."""
    chance, aftermath = random.Random(system.plan.seed), Aftermath(_COPIES)
    states, results = _states(system.tickwheel), {"refused": 0, "reported": 0, "no state differs": 0}
    for n in range(_COPIES):
        with _copy(system, n) as (server, file):
            at = chance.randrange(file.stat().st_size)
            with file.open("r+b") as data:
                data.seek(at)
                byte = data.read(1)[0]
                data.seek(at)
                data.write(bytes([byte ^ 1 << chance.randrange(8)]))
            try:
                server.start()
                with _opened(server) as tickwheel:
                    findings = tickwheel._run(audit(tickwheel._context))
                    same = _states(tickwheel) == states
            except (ServiceError, TickwheelError, ValueError):
                results["refused"] += 1
                continue
            results["reported" if findings else "no state differs"] += 1
            if not (findings or same):
                aftermath.violations.append(Violation("I4", f"byte {at} of {file} was changed, but not detected"))
    aftermath.marks.append(", ".join(f"{count} {result}" for result, count in results.items()))
    return aftermath


def let_retention_pass(system: SystemUnderTest) -> Aftermath:
    """Advance the server's clock by six minutes, and accept the step: no message may be left."""
    aftermath = Aftermath()
    step_clock(system.place.faketime, _RETENTION_S)

    def all_gone() -> bool:
        for driver in system.drivers:
            log = driver.process.log
            if log.count("promotion is held") > log.count("was accepted"):
                os.kill(driver.process.pid, signal.SIGUSR1)
        return not of_no_messages(system)

    try:
        system.until(all_gone, "all messages are gone", _PASSES_S)
    except TimeoutError:
        aftermath.violations += [Violation("I6", f"{key} is left over") for key in of_no_messages(system)[:20]]
    aftermath.marks.append("every message was deleted after its retention")
    return aftermath


AFTERMATHS: dict[str, Callable[[SystemUnderTest], Aftermath]] = {
    "cut_file": cut_file,
    "flip_byte": flip_byte,
    "let_retention_pass": let_retention_pass,
}


@contextmanager
def _copy(system: SystemUnderTest, number: int) -> Iterator[tuple[ValkeyServer, Path]]:
    """Yield a server on a copy of the run's data, not started, and its append-only file."""
    folder = system.folder / f"copy-{number}"
    shutil.copytree(system.place.disk / "appendonlydir", folder / "appendonlydir")
    [file] = (folder / "appendonlydir").glob("*.incr.aof")
    server = ValkeyServer("valkey-copy", folder)
    try:
        yield server, file
    finally:
        server.kill()
        shutil.rmtree(folder)


def _opened(server: ValkeyServer) -> Tickwheel:
    return Tickwheel(server.url, namespace=NAMESPACE, timeout=timedelta(seconds=5))


def _states(tickwheel: Tickwheel) -> dict[str, Any]:
    return {
        message.id: (queue.name, message.state, message.version, message.attempt, message.exclusive_value)
        for queue in tickwheel.queues()
        for message in queue.messages()
    }
