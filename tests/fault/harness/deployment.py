"""Where a run's data is: a server that can be killed, paused and cut off, and how clients and drivers reach it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from services.apt import find_or_install
from services.process import HOST, ServiceError
from services.valkey import ValkeyServer
from tests.fault.flaky_proxy import FlakyProxy

_DISK_BYTES = 48 << 20
_SITE = str(Path(__file__).parent / "faked")


class RowUnavailable(Exception):
    """What a row needs is not on this machine; the text says what."""


class Deployment:
    """A single server with an append-only file that is written before each answer."""

    durability = "fsync"

    _small = False

    def __init__(self, folder: Path, *, proxied: bool, faked: str) -> None:
        self.folder = folder
        self.disk = folder / "data"
        self.faketime, self.rate = folder / "faketime", folder / "rate"
        self._stack = ExitStack()
        stepped = faked_clock(self.faketime) if faked in ("server", "drivers") else {}
        drifting = {"FAKED_RATE": str(self.rate), "PYTHONPATH": _SITE}
        self.driver_environment = {"drivers": stepped, "drivers' rate": drifting}.get(faked, {})
        set_clock(self.rate, "1")
        environment = stepped if faked == "server" else {}
        settings = {"appendfsync": "always"}
        self.server = ValkeyServer("valkey", self.disk, settings, environment)
        self.proxies: list[FlakyProxy] = []
        self._proxied = proxied

    @property
    def url(self) -> str:
        """Where clients go."""
        return self.proxies[0].url if self.proxies else self.server.url

    @property
    def driver_url(self) -> str:
        """Where event processes go."""
        return self.proxies[1].url if self.proxies else self.server.url

    @property
    def own_url(self) -> str:
        """Where the harness goes itself: past what is done to the others' ways."""
        return self.server.url

    @property
    def servers(self) -> list[ValkeyServer]:
        """Those that have a history to answer for."""
        return [self.server]

    def client(self) -> Any:
        """A redis-py client past all proxies. Close it."""
        return self.server.client(decode_responses=False)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.disk.mkdir()
            if self._small:
                stack.enter_context(_small_disk(self.disk))
            self.server.start()
            stack.callback(self.server.kill)
            if self._proxied:
                target = (HOST, self.server.port)
                self.proxies = [stack.enter_context(FlakyProxy(target, keeps_requests=False)) for _ in range(2)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class SmallDisk(Deployment):
    """The same on a small disk of its own."""

    _small = True


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A disk of its own for a folder."""
    if os.geteuid() != 0:
        raise RowUnavailable("a small disk is mounted by root only")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RowUnavailable(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def faked_clock(file: Path) -> dict[str, str]:
    """The environment of a process whose clock goes as this host's does, plus the step that is in the file."""
    try:
        library = find_or_install(_libfaketime, "faketime")
    except ServiceError as error:
        raise RowUnavailable(str(error)) from error
    step_clock(file, 0)
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        # Both names: that of this version and that of later ones. Time-outs are not to be stepped.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": _SITE,
    }


def _libfaketime() -> str | None:
    return next((str(file) for file in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def step_clock(file: Path, seconds: int) -> None:
    """Step the clock until it is so far from this host's."""
    set_clock(file, f"{seconds:+d}")


def drift_clock(file: Path, rate: float) -> None:
    """Let the clock go so many times as fast as this host's, counted from the start of its process."""
    set_clock(file, f"+0 x{rate}")


def set_clock(file: Path, clock: str) -> None:
    """Say what a clock shows, or how fast it goes, in one step: it is read at any moment."""
    new = file.with_suffix(".new")
    new.write_text(f"{clock}\n")
    new.replace(file)
