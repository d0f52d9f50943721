"""The server of a run, which can be killed, paused and cut off, and the addresses for clients and drivers."""

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
    """A row needs something that this machine does not have. The text names it."""


class Deployment:
    """A single server that writes its append-only file before each answer."""

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
        """The URL for clients."""
        return self.proxies[0].url if self.proxies else self.server.url

    @property
    def driver_url(self) -> str:
        """The URL for event processes."""
        return self.proxies[1].url if self.proxies else self.server.url

    @property
    def own_url(self) -> str:
        """The URL for the harness itself, without the faults of proxies."""
        return self.server.url

    @property
    def servers(self) -> list[ValkeyServer]:
        """The servers whose append-only files are checked."""
        return [self.server]

    def client(self) -> Any:
        """Return a redis-py client without proxies. The caller closes it."""
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
    """A single server whose data is on a separate small disk."""

    _small = True


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk on the folder."""
    if os.geteuid() != 0:
        raise RowUnavailable("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RowUnavailable(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def faked_clock(file: Path) -> dict[str, str]:
    """Return the environment of a process whose clock is this host's clock plus the step in the file."""
    try:
        library = find_or_install(_libfaketime, "faketime")
    except ServiceError as error:
        raise RowUnavailable(str(error)) from error
    step_clock(file, 0)
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        # The step must not affect time-outs. Later versions of libfaketime use the second name.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": _SITE,
    }


def _libfaketime() -> str | None:
    return next((str(file) for file in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def step_clock(file: Path, seconds: int) -> None:
    """Set the difference between the clock and this host's clock."""
    set_clock(file, f"{seconds:+d}")


def drift_clock(file: Path, rate: float) -> None:
    """Set the rate of the clock relative to this host's clock, from the start of its process on."""
    set_clock(file, f"+0 x{rate}")


def set_clock(file: Path, clock: str) -> None:
    """Write the time or the rate of a clock atomically, because processes read the file at any time."""
    new = file.with_suffix(".new")
    new.write_text(f"{clock}\n")
    new.replace(file)
