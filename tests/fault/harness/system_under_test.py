"""The processes of a run on one deployment: event processes, producers and workers, with restarts."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.process import Process
from tests.fault.harness.call_log import now
from tests.fault.harness.deployment import Deployment
from tests.fault.harness.elections import Election, LastResort, LockFiles
from tests.fault.harness.plan import RunPlan
from tests.fault.harness.relay import Relay
from tests.fault.harness.restarted_process import RestartedProcess
from tests.fault.harness.settings import Settings
from tickwheel import Tickwheel
from tickwheel.plan import Request, send_request
from tickwheel.storage.keys import shard_key

NAMESPACE = "faults"
DRIVERS = 2
_POLL_S, _START_S = 0.02, 60.0
_FENCE_BYTES = 8


class SystemUnderTest:
    """The processes of a run. ``started`` is the start of the load, by the clock of the call logs."""

    def __init__(
        self, plan: RunPlan, place: Deployment, tickwheel: Tickwheel, election: Election, relay: Relay | None
    ) -> None:
        self.relay = relay
        self.plan, self.place, self.tickwheel, self.election = plan, place, tickwheel, election
        self.folder = place.folder
        # While this file exists, the next relay with an acknowledged record kills its process.
        self.order = self.folder / "kill-relay"
        self.fences: list[list[tuple[int, int]]] = [[] for _ in range(plan.load.shards)]
        self.drivers = [RestartedProcess(f"driver{n}", self._driver) for n in range(DRIVERS)]
        self.producers: list[RestartedProcess] = []
        self.workers: list[RestartedProcess] = []
        self.started = 0.0
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._watch_run, name="harness-watch", daemon=True)
        self._settings = Settings("", "", "", "", 0.0, plan.load)

    def start(self, lead_s: float = 1.0) -> None:
        """Start all processes. The load begins when every shard is driven."""
        self._watch.start()
        self.until(lambda: all(self.fences) and self._is_shared_out(), "every shard is driven", _START_S)
        self.started = now() + lead_s
        load = self.plan.load
        self._settings = Settings(
            self.place.url, NAMESPACE, self.place.durability, str(self.folder), self.started, load
        )
        self.workers = [RestartedProcess(f"worker{n}", self._program("worker")) for n in range(load.workers)]
        self.producers = [
            RestartedProcess(f"producer{n}", self._program("producer"), float("inf")) for n in range(load.producers)
        ]

    def _is_shared_out(self) -> bool:
        """Return whether each event process drives a shard, if the election distributes shards."""
        return isinstance(self.election, LockFiles) or all(map(self._has_led, self.drivers))

    def _has_led(self, driver: RestartedProcess) -> bool:
        return driver.is_running and self.election.elected in driver.process.log

    def until(self, condition: Callable[[], bool], description: str, within: float) -> None:
        """Wait until the condition holds. Raises TimeoutError."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"this did not happen within {within} s: {description}")
            time.sleep(_POLL_S)

    def leading(self, whom: int) -> RestartedProcess:
        """Return a driver that has been elected. ``whom`` selects one of several."""
        leaders: list[RestartedProcess] = []

        def leads() -> bool:
            leaders[:] = filter(self._has_led, self.drivers)
            return bool(leaders)

        self.until(leads, "a driver leads", _START_S)
        return leaders[whom % len(leaders)]

    def fences_now(self) -> list[tuple[int, int]]:
        """Return the last observed fence of each shard."""
        return [fences[-1] for fences in self.fences]

    def end_workers(self) -> None:
        """Stop producers and workers, after workers have settled their messages."""
        self._stop_watching()
        for program in self.producers + self.workers:
            program.process.stop()

    def close(self) -> None:
        """Kill all processes."""
        self._stop_watching()
        for program in self.producers + self.workers + self.drivers:
            program.close()

    def end_drivers(self) -> None:
        """Stop the event processes like an operator."""
        for driver in self.drivers:
            driver.process.stop()

    def _stop_watching(self) -> None:
        self._stopping.set()
        if self._watch.is_alive():
            self._watch.join()

    def _driver(self, name: str) -> Process:
        election, driver = self.election, name.partition("-")[0]
        program, relay = ["tickwheel"], list[str]()
        if self.relay is not None:
            relay = self.relay.arguments()
            if not isinstance(election, LastResort):
                program = ["tests.fault.harness.self_killing_relay", str(self.order)]
        command = [sys.executable, "-m", *program, *election.program]
        command += ["--url", election.server_url(driver, self.place), "--namespace", NAMESPACE]
        command += [*election.arguments(driver), *relay]
        environment = {"PYTHONPATH": _PYTHON_PATH} | self.place.driver_environment
        return Process(name, command, self.folder, environment=environment)

    def _program(self, kind: str) -> Callable[[str], Process]:
        def make(name: str) -> Process:
            command = [sys.executable, "-m", f"tests.fault.harness.{kind}", self._settings.to_json(), name]
            return Process(name, command, self.folder, environment={"PYTHONPATH": _PYTHON_PATH})

        return make

    def _watch_run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            for program in self.drivers + self.workers:
                program.restart_if_ended()
            self._observe_fences()

    def _observe_fences(self) -> None:
        for shard, fences in enumerate(self.fences):
            request = Request(shard, command=("HGET", shard_key(NAMESPACE, shard, "clock"), "fence"))
            try:
                packed = self.tickwheel._run(send_request(request)).value
            except Exception:
                # Expected, because faults affect the server.
                return
            if packed is not None:
                fence = (int.from_bytes(packed[:_FENCE_BYTES]), int.from_bytes(packed[_FENCE_BYTES:]))
                if not fences or fences[-1] != fence:
                    fences.append(fence)


_ROOT = Path(__file__).parents[3]
# The programs of a run import the same packages as the harness, also in a checkout that is not installed.
_PYTHON_PATH = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def refused_calls(client: Any, code: str) -> int:
    """Return the number of calls that a server has rejected with this code since its start."""
    return int(client.info("errorstats").get(f"errorstat_{code}", {"count": 0})["count"])
