"""The server of a run, which can be killed, paused and cut off, and the addresses for clients and drivers."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from services.process import HOST, ServiceError
from services.stepped_clock import clock_environment, set_clock
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
        # The links of single drivers to the server.
        self.driver_links: list[FlakyProxy] = []
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

    def open_link(self) -> FlakyProxy:
        """Return a link of one driver to the server. The deployment closes the link at its end."""
        link = self._stack.enter_context(FlakyProxy((HOST, self.server.port), keeps_requests=False))
        self.driver_links.append(link)
        return link

    def step_clock(self, seconds: int) -> None:
        """Set the difference between the server's clock and this host's clock, if the clock is faked."""
        set_clock(self.faketime, f"{seconds:+d}")

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
        return clock_environment(file) | {"PYTHONPATH": _SITE}
    except ServiceError as error:
        raise RowUnavailable(str(error)) from error
