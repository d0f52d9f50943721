"""Recurring tasks on real workers: each second fires exactly once while workers and event processes are killed."""

import os
import signal
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fault import recurring_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.worker_processes import Worker
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, Unavailable
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.task_tester import open_task_tester
from tickwheel.worker.schedule_runner import ScheduleRunner

pytestmark = pytest.mark.fault

APP = "tests.fault.recurring_app:app"


class RecurringDeployment:
    """A namespace with its history, an event process and workers that tests can kill."""

    def __init__(self, server: PrivateServer, client: Any, folder: Path, stack: ExitStack) -> None:
        self._server, self._client, self._folder, self._stack = server, client, folder, stack
        self._namespace = f"recurring-{uuid.uuid4().hex[:8]}"
        self.tickwheel = stack.enter_context(Tickwheel(server.url, namespace=self._namespace, shards=2))
        self.events = self.start_events()

    def start_events(self) -> EventProcessChild:
        return self._stack.enter_context(EventProcessChild(self._server.url, self._namespace, self._folder / "lock"))

    def start_worker(self, *options: str) -> Worker:
        folder = self._folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        worker = Worker(self._server.url, self._namespace, folder, "--drain", "100ms", *options, app=APP)
        return self._stack.enter_context(worker)

    def history(self) -> list[OutboxTransition]:
        return read_outbox(self._client, self._namespace, shards=2)

    def events_of(self, schedule: str, state: State | None = None) -> dict[int, list[int]]:
        """Return the times at which the occurrence of each second was enqueued, or entered ``state``."""
        times = defaultdict[int, list[int]](list)
        for transition in self.history():
            matches = transition.to_state is state if state else transition.from_state is None
            if matches and transition.id.startswith(f"{schedule}@"):
                at = datetime.fromisoformat(transition.id.removeprefix(f"{schedule}@"))
                times[round(at.timestamp())].append(transition.time_ms)
        return times


@pytest.fixture
def deployment(tickwheel_server: PrivateServer, server: Any, tmp_path: Path) -> Iterator[RecurringDeployment]:
    with ExitStack() as stack:
        yield RecurringDeployment(tickwheel_server, server, tmp_path, stack)


def test_the_clients_of_a_worker_do_not_repeat_its_warning_that_nobody_drives(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    warning = "no event process drives"
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        Worker(tickwheel_server.url, namespace, tmp_path, app=APP, drive="never") as worker,
    ):

        def waiting() -> int:
            queues = [queue for queue in tickwheel.queues() if queue.name == "schedules"]
            return sum(tickwheel.queue(queue.name).counts()["invisible"] for queue in queues)

        eventually(waiting, "the schedules wait", 30)
        eventually(lambda: warning in worker.log, "the worker warns", 30)
        # A process ends after the check that its client has begun.
        assert worker.stop(30) == 0
        lines = [line for line in worker.log.splitlines() if warning in line]
    assert [line.split(" WARNING ")[1].split(":")[0] for line in lines] == ["tickwheel.worker"]


def test_each_second_fires_once_without_overlap_while_processes_are_killed(deployment: RecurringDeployment) -> None:
    workers = [deployment.start_worker("--processes", "2"), deployment.start_worker()]
    eventually(lambda: deployment.events_of("tick"), "the schedule has fired", 30)
    for n, target in enumerate(["process", "events", "process", "worker"] * 3):
        fired = len(deployment.events_of("tick"))
        if target == "process":
            for child in workers[n % 2].children:
                # The process may have ended with its worker.
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        elif target == "worker":
            workers[n % 2].send_signal(signal.SIGKILL)
            workers[n % 2] = deployment.start_worker()
        else:
            deployment.events.kill()
            deployment.events = deployment.start_events()
        eventually(lambda fired=fired: len(deployment.events_of("tick")) > fired, "the schedule fires again", 30, 0.05)  # type: ignore[misc]
    until = datetime.now(UTC).timestamp()
    # Occurrences that a killed process had leased are delivered again when their leases expire.
    eventually(lambda: has_all(deployment.events_of("tick"), until), "each second has fired", 30, 0.05)
    assert {len(times) for times in deployment.events_of("tick").values()} == {1}

    eventually(lambda: len(deployment.events_of("crawl")) > 4, "the slow task has fired several times", 30, 0.05)
    begun, done = deployment.events_of("crawl"), deployment.events_of("crawl", State.COMPLETED)
    assert {len(times) for times in begun.values()} == {1}
    for earlier, later in pairwise(sorted(begun)):
        assert done[earlier][0] <= begun[later][0]


def test_schedules_continue_while_a_task_has_moved_the_app(deployment: RecurringDeployment, tmp_path: Path) -> None:
    back = tmp_path / "back"
    worker = deployment.start_worker()
    eventually(lambda: deployment.events_of("tick"), "the schedule has fired", 30)
    message = recurring_app.move_until.message((str(back),), {})
    deployment.tickwheel.queue("work").enqueue_many([message])
    worker.wait_until_recorded("moved")
    fired = len(deployment.events_of("tick"))
    eventually(lambda: len(deployment.events_of("tick")) > fired + 2, "the schedule fires in its namespace")
    back.touch()
    worker.wait_until_recorded("returned")
    until = datetime.now(UTC).timestamp()
    eventually(lambda: has_all(deployment.events_of("tick"), until), "each second has fired")


def test_a_worker_that_is_stopping_does_not_fire(deployment: RecurringDeployment, tmp_path: Path) -> None:
    end = tmp_path / "end"
    worker = deployment.start_worker("--drain", "30s")
    eventually(lambda: deployment.events_of("tick"), "the schedule has fired", 30)
    deployment.tickwheel.queue("work").enqueue_many([recurring_app.wait_for.message((str(end),), {})])
    worker.wait_until_recorded("waits")
    worker.send_signal(signal.SIGTERM)

    def has_missed() -> bool:
        late = datetime.now(UTC) - timedelta(seconds=2)
        occurrences = deployment.tickwheel.queue("schedules").messages("pending")
        return any(message.due < late for message in occurrences)

    eventually(has_missed, "the occurrences wait for the next worker", 20)
    assert worker.is_running
    fired = len(deployment.events_of("tick"))
    end.touch()
    eventually(lambda: not worker.is_running, "the worker ends", 30)
    assert len(deployment.events_of("tick")) == fired


def hourly() -> TaskApp:
    """Return an app with one schedule."""
    app = TaskApp()

    @app.task(queue="work", name="work")
    def work() -> None: ...

    app.every(HOUR, work, name="hourly", overlap=False)
    return app


NOON, HOUR = datetime(2026, 3, 27, 12, tzinfo=UTC), timedelta(hours=1)
HOURLY = hourly().schedules["hourly"]
# The process dies after the call that contains these bytes.
LAST_CALLS = {
    "leased-the-occurrence": b"dying process",
    "fired": HOURLY.firing_id(NOON + HOUR).encode(),
    "enqueued-the-next": HOURLY.occurrence_id(NOON + 2 * HOUR).encode(),
    "completed": HOURLY.occurrence_id(NOON + HOUR).encode(),
}


@pytest.mark.tickwheel(now=NOON, shards=4)
@pytest.mark.parametrize("last_call", LAST_CALLS)
def test_another_process_completes_an_occurrence_whose_process_died_after_any_of_its_calls(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, tickwheel_clock: VirtualClock, last_call: str
) -> None:
    app, same = hourly(), hourly()
    socket = str(tickwheel_server.folder / "valkey.sock")
    with open_task_tester(app, tickwheel, tickwheel_clock) as tester, FlakyProxy(socket) as proxy, same:
        tester.run_due()
        tickwheel_clock.advance(HOUR)
        same.move(**app.where | {"url": proxy.url, "timeout": timedelta(milliseconds=300)})
        for queue in ("work", "schedules"):
            same.declared(queue)
        proxy.loses_answer_to, proxy.when_lost = LAST_CALLS[last_call], lambda: setattr(proxy, "refuses", True)
        with pytest.raises(Unavailable):
            ScheduleRunner(same, "dying process").fire_due()
        assert proxy.lost == 1
        assert [outcome.error for outcome in tester.advance(HOUR)] == [None, None]
        fired = [message.id for message in tickwheel.queue("work").messages()]
        # The first firing is deleted, because its retention has ended.
        assert fired == [HOURLY.firing_id(NOON + 2 * HOUR)]


def has_all(times: Collection[int], until: float) -> bool:
    """Return whether each second from the first to ``until`` has fired."""
    return max(times) >= until and len(times) == max(times) - min(times) + 1
