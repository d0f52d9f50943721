"""The processes of a run, all on one place: event processes, producers and workers, kept running."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.process import Process
from tests.fault.harness.deployment import Deployment
from tests.fault.harness.elections import Election, LockFiles
from tests.fault.harness.history import now
from tests.fault.harness.plan import RunPlan
from tests.fault.harness.relay import Relay
from tests.fault.harness.restarted_process import RestartedProcess
from tests.fault.harness.settings import Settings
from tickwheel import Tickwheel
from tickwheel.plan import Request, send_request
from tickwheel.storage.keys import shard_key

NAMESPACE = "faults"
DRIVERS = 2
_LOOK_S, _START_S = 0.02, 60.0
_FENCE_BYTES = 8


class SystemUnderTest:
    """A run's processes. ``started`` is when its load begins, by the history's clock."""

    def __init__(
        self, plan: RunPlan, place: Deployment, tickwheel: Tickwheel, election: Election, relay: Relay | None
    ) -> None:
        self.relay = relay
        self.plan, self.place, self.tickwheel, self.election = plan, place, tickwheel, election
        self.folder = place.folder
        # While it is there, the next relay with something acknowledged is to kill its process.
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
        """Have all running; the load begins when every shard is driven."""
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
        """Whether each event process drives where each is to have its share: nothing is handed over any more."""
        return isinstance(self.election, LockFiles) or all("elected" in kept.process.log for kept in self.drivers)

    def until(self, condition: Callable[[], bool], what: str, within: float) -> None:
        """Until the condition holds; TimeoutError where that takes too long."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {within} s: {what}")
            time.sleep(_LOOK_S)

    def leading(self, whom: int) -> RestartedProcess:
        """An event process that drives a shard; which, of several, ``whom`` says."""
        found: list[RestartedProcess] = []

        def leads() -> bool:
            found[:] = [kept for kept in self.drivers if kept.is_running and "elected" in kept.process.log]
            return bool(found)

        self.until(leads, "an event process leads", _START_S)
        return found[whom % len(found)]

    def fences_now(self) -> list[tuple[int, int]]:
        """The fence that each shard was last seen to obey."""
        return [seen[-1] for seen in self.fences]

    def end_workers(self) -> None:
        """Let workers finish what they have, and end."""
        self._stop_watching()
        for kept in self.producers + self.workers:
            kept.process.stop()

    def close(self) -> None:
        """End all processes."""
        self._stop_watching()
        for kept in self.producers + self.workers + self.drivers:
            kept.close()

    def end_drivers(self) -> None:
        """End the event processes as an operator does."""
        for kept in self.drivers:
            kept.process.stop()

    def _stop_watching(self) -> None:
        self._stopping.set()
        if self._watch.is_alive():
            self._watch.join()

    def _driver(self, name: str) -> Process:
        program = ["tickwheel"] if self.relay is None else ["tests.fault.harness.self_killing_relay", str(self.order)]
        command = [sys.executable, "-m", *program, "events", "--url", self.place.driver_url]
        command += ["--namespace", NAMESPACE, *self.election.arguments(name.partition("-")[0])]
        command += [] if self.relay is None else self.relay.arguments()
        environment = {"PYTHONPATH": str(_ROOT)} | self.place.driver_environment
        return Process(name, command, self.folder, environment=environment)

    def _program(self, kind: str) -> Callable[[str], Process]:
        def make(name: str) -> Process:
            command = [sys.executable, "-m", f"tests.fault.harness.{kind}", self._settings.to_json(), name]
            return Process(name, command, self.folder, environment={"PYTHONPATH": str(_ROOT)})

        return make

    def _watch_run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for kept in self.drivers + self.workers:
                kept.restart_if_ended()
            self._see_fences()

    def _see_fences(self) -> None:
        for shard, seen in enumerate(self.fences):
            request = Request(shard, command=("HGET", shard_key(NAMESPACE, shard, "clock"), "fence"))
            try:
                packed = self.tickwheel._run(send_request(request)).value
            except Exception:
                # The server is what the fault is about.
                return
            if packed is not None:
                fence = (int.from_bytes(packed[:_FENCE_BYTES]), int.from_bytes(packed[_FENCE_BYTES:]))
                if not seen or seen[-1] != fence:
                    seen.append(fence)


_ROOT = Path(__file__).parents[3]


def refused_calls(client: Any, code: str) -> int:
    """How many calls a server has refused with this code since it was started."""
    return int(client.info("errorstats").get(f"errorstat_{code}", {"count": 0})["count"])
