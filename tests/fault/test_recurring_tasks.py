"""Recurring tasks on real workers: whatever is killed, however often, each second fires once and none is left out."""

import os
import random
import signal
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import eventually
from tests.fault.event_processes import EventProcessChild
from tests.fault.worker_processes import Worker
from tickwheel import Tickwheel, transitions
from tickwheel.keys import shard_key
from tickwheel.record import State
from tickwheel.testing import PrivateServer
from tickwheel.transitions import Transition

pytestmark = pytest.mark.fault

APP = "tests.fault.recurring_app:app"


class Place:
    """A namespace, its history, and what works there, to be killed."""

    def __init__(self, server: PrivateServer, client: Any, folder: Path, running: ExitStack) -> None:
        self._server, self._client, self._folder, self._running = server, client, folder, running
        self._namespace = f"recurring-{uuid.uuid4().hex[:8]}"
        self.tickwheel = running.enter_context(Tickwheel(server.url, namespace=self._namespace, shards=2))
        self.events = self.start_events()

    def start_events(self) -> EventProcessChild:
        return self._running.enter_context(EventProcessChild(self._server.url, self._namespace, self._folder / "lock"))

    def start_worker(self, *options: str) -> Worker:
        folder = self._folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        worker = Worker(self._server.url, self._namespace, folder, "--drain", "100ms", *options, app=APP)
        return self._running.enter_context(worker)

    def history(self) -> list[Transition]:
        keys = [shard_key(self._namespace, shard, "events") for shard in range(2)]
        entries = [fields[b"e"] for key in keys for _, fields in self._client.xrange(key)]
        return [transition for entry in entries for transition in transitions.decode(entry)]

    def events_of(self, schedule: str, state: State | None = None) -> dict[int, list[int]]:
        """For which seconds a schedule has fired, or come to a state, and when: each as often as it has."""
        found = defaultdict[int, list[int]](list)
        for each in self.history():
            if each.id.startswith(f"{schedule}@") and (each.to_state is state if state else each.from_state is None):
                at = datetime.fromisoformat(each.id.removeprefix(f"{schedule}@"))
                found[round(at.timestamp())].append(each.time_ms)
        return found


@pytest.fixture
def place(tickwheel_server: PrivateServer, server: Any, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as running:
        yield Place(tickwheel_server, server, tmp_path, running)


def test_each_second_fires_once_and_none_overlaps_whatever_is_killed(place: Place) -> None:
    rng, kills = random.Random(7), Counter[str]()
    workers = [place.start_worker("--processes", "2"), place.start_worker()]
    eventually(lambda: place.events_of("tick"), "it has begun", 30)
    ends = time.monotonic() + 15
    while time.monotonic() < ends:
        what, n = rng.choice(["process", "process", "worker", "events"]), rng.randrange(len(workers))
        fired = len(place.events_of("tick"))
        if what == "process" and (children := workers[n].children):
            os.kill(rng.choice(children), signal.SIGKILL)
        elif what == "worker":
            workers[n].signal(signal.SIGKILL)
            workers[n] = place.start_worker()
        elif what == "events":
            place.events.kill()
            place.events = place.start_events()
        kills[what] += 1
        eventually(lambda fired=fired: len(place.events_of("tick")) > fired, "it goes on", 30, 0.05)  # type: ignore[misc]
    until = datetime.now(UTC).timestamp()
    eventually(lambda: max(place.events_of("tick")) >= until, "all seconds have come", 30, 0.05)
    ticks = place.events_of("tick")
    assert {len(times) for times in ticks.values()} == {1}
    assert sorted(ticks) == [*range(min(ticks), max(ticks) + 1)]
    assert min(kills[what] for what in ("process", "worker", "events")) >= 2, kills

    eventually(lambda: len(place.events_of("crawl")) > 4, "what takes longer has fired again", 30, 0.05)
    begun, done = place.events_of("crawl"), place.events_of("crawl", State.COMPLETED)
    assert {len(times) for times in begun.values()} == {1}
    for earlier, later in pairwise(sorted(begun)):
        assert done[earlier][0] <= begun[later][0]
