"""A deployment whose processes run in either of two versions: event processes, services, workers and clients."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from services.process import HOST, Process, free_port
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.operations.shard_status import shard_statuses

ROOT = Path(__file__).parents[2]
PRESENT = ""
# The tokens of the file, one for each service.
TOKENS = ("producer", "consumer")
_STOP_S = 90.0


@dataclass
class Component:
    """One process of the deployment. ``site`` is the folder of its version, or `PRESENT`.

    The process is ready when its log contains ``ready``, with the folder of its version instead of SITE, and when it
    has a handler for SIGTERM. The log does not show this for every kind of process.
    """

    name: str
    arguments: Sequence[str]
    folder: Path
    environment: dict[str, str]
    ready: str = "version SITE"
    site: str = PRESENT
    _process: Process | None = field(default=None, init=False)

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} has not been started"
        return self._process

    def start(self, site: str) -> None:
        """Start the process in the version of ``site``."""
        self.site = site
        self.folder.mkdir(exist_ok=True)
        path = python_path(site)
        command = [sys.executable, "-P", *self.arguments]
        environment = self.environment | {"PYTHONPATH": path, "TMPDIR": str(self.folder.parent)}
        ready = self.ready.replace("SITE", site or str(ROOT / "scheduler"))
        process = Process(
            self.name,
            command,
            self.folder,
            lambda: ready in process.log and handles_sigterm(process.pid),
            environment=environment,
        )
        self._process = process
        process.start()

    def stop(self) -> None:
        """Stop the process in an orderly manner."""
        status = self.process.stop(_STOP_S)
        assert status == 0, f"{self.name} ended with {status}:\n{self.process.log_tail()}"

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()

    def wait_until_it_ends(self, code: int) -> None:
        """Wait until the process exits without a signal, with this exit code."""
        status = self.process.wait(_STOP_S)
        assert status == code, f"{self.name} ended with {status}:\n{self.process.log_tail()}"

    def replace(self, site: str) -> None:
        """Stop the process, and start it in the version of ``site``."""
        self.stop()
        self.start(site)

    @property
    def lines(self) -> list[str]:
        """What the process, and its predecessors of the same name, have written."""
        return [line for path in self._files for line in path.read_text(errors="replace").splitlines()]

    @property
    def written_bytes(self) -> int:
        """The length of `lines`. A test may read it every 20 ms: the files reach megabytes."""
        return sum(path.stat().st_size for path in self._files)

    @property
    def _files(self) -> list[Path]:
        return [path for path in (self.process.log_path, self.folder / "notes") if path.exists()]


class MixedDeployment:
    """The processes of one namespace: two event processes, two services, a worker, a producer and a consumer on each
    of the two kinds of URL.
    """

    def __init__(self, folder: Path, server: ValkeyServer, users: dict[str, str], tokens: dict[str, str]) -> None:
        """``users`` maps the server's users to their passwords, and ``tokens`` maps the names of tokens to tokens.

        Without ``users``, all processes use the default user, who may do everything.
        """

        def url_of(user: str) -> str:
            return f"redis://{user}:{users[user]}@{server.address}" if users else server.url

        self._folder = folder
        direct = url_of("tw-service")
        events = {"TICKWHEEL_URL": url_of("tw-events")}
        ports = [free_port(), free_port()]
        module = ("-m", "tickwheel")
        self.services = [
            Component(
                f"service-{n}",
                (*module, "serve", "--listen", f"{HOST}:{port}", "--tokens", str(folder / "tokens.toml")),
                folder / f"service-{n}",
                {"TICKWHEEL_URL": direct},
                ready="serving grpc",
            )
            for n, port in enumerate(ports)
        ]
        self.lock = ("--lock", str(folder / "lock"))
        self.event_processes = [
            Component(f"events-{n}", (*module, "events", *self.lock), folder / f"events-{n}", events, ready="")
            for n in range(2)
        ]
        over_grpc = [f"grpc://:{tokens[name]}@{HOST}:{port}" for name, port in zip(TOKENS, ports, strict=True)]
        self.workers, self.producers, self.consumers = (
            [
                Component(f"{kind}-{way}", arguments, folder / f"{kind}-{way}", {"TICKWHEEL_URL": url})
                for way, url, arguments in (
                    ("direct", direct, program(f"{kind}-direct", "jobs")),
                    ("grpc", over_grpc[kind != "producer"], program(f"{kind}-grpc", "videos")),
                )
            ]
            for kind, program in (
                ("worker", lambda name, queue: (*module, "worker", "tests.upgrade.upgrade_app:app")),
                ("producer", lambda name, queue: ("-m", "tests.upgrade.upgrade_producer", name)),
                ("consumer", lambda name, queue: ("-m", "tests.upgrade.upgrade_consumer", name, queue)),
            )
        )
        self.direct_url = direct

    @property
    def drivers_of_last_resort(self) -> list[Component]:
        """The programs of the present version that drive if no event process does, and if their user may do this."""
        return [*self.services, self.workers[0]]

    @property
    def components(self) -> list[Component]:
        """Every process, in an order in which the processes can start."""
        return [*self.event_processes, *self.services, *self.workers, *self.consumers, *self.producers]

    def create(self, site: str, bulk: int) -> None:
        """Create the namespace and ``bulk`` messages, in the version of ``site``."""
        arguments = ("-m", "tests.upgrade.upgrade_producer", "bulk", str(bulk))
        created = run_program(site, *arguments, folder=self._folder, url=self.direct_url)
        assert created.returncode == 0, created.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for component in self.components:
            component.kill()

    def count(self, action: str) -> Counter[tuple[str, str]]:
        """Return how often each message, by its queue and id, was ``sent`` or ``done``."""
        counter: Counter[tuple[str, str]] = Counter()
        for component in (*self.producers, *self.consumers, *self.workers):
            for line in component.lines:
                verb, *message = line.split(" ")
                if verb == action and len(message) == 2:
                    counter[message[0], message[1]] += 1
        return counter


def wait_for_drivers(event_processes: Sequence[Component], client: Tickwheel) -> set[str]:
    """Wait until one of the running event processes has claimed each shard. Return the versions of the claimants."""
    sites = {str(component.process.pid): component.site for component in event_processes}

    def claimants() -> list[str] | None:
        statuses = client._run(shard_statuses(client._context))
        ids = [status.owner.rpartition(":")[2] for status in statuses]
        return [sites[process_id] for process_id in ids] if sites.keys() >= set(ids) else None

    found = eventually(claimants, "a running event process has claimed each shard", 60, 0.02)
    assert found is not None
    return set(found)


def python_path(site: str) -> str:
    """Return the variable PYTHONPATH for the version of ``site``, and for the programs of the tests."""
    present = (ROOT / "scheduler", ROOT / "wheel")
    return ":".join(map(str, (*([site] if site else present), ROOT)))


def handles_sigterm(process_id: int) -> bool:
    """Return whether the process has set a handler for SIGTERM. Raises OSError if there is no such process."""
    status = Path(f"/proc/{process_id}/status").read_text()
    handled = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(handled, 16) >> (signal.SIGTERM - 1) & 1)


def run_program(site: str, *arguments: str, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run a Python program in the version of ``site`` until it ends."""
    environment = {"PYTHONPATH": python_path(site), "TICKWHEEL_URL": url, "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-P", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
