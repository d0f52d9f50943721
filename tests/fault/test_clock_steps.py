"""A server's clock steps under a real event process: no message is early, and an operator can accept the step."""

import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.process import Process
from tests.fault.event_processes import fence, wait_for_a_claim
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.cli.app import app
from tickwheel.storage.keys import shard_key
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
NAMESPACE = "stepped"
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)


class SteppedClock:
    """A namespace's clock: the clock of this host plus a step."""

    def __init__(self, server: PrivateServer, shards: int = 1) -> None:
        self._step = timedelta()
        self._lock = threading.Lock()
        self._client = server.client()
        self._keys = [shard_key(NAMESPACE, shard, "clock") for shard in range(shards)]
        self._stopping = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def now(self) -> datetime:
        """Return the time of the clock."""
        return datetime.now(UTC) + self._step

    def step_to(self, step: timedelta) -> None:
        """Set the difference from this host's clock, and write the new time to all shards."""
        with self._lock:
            self._step = step
        self._write()

    @property
    def accepted_ms(self) -> int:
        """Return the smallest accepted step that any shard stores."""
        return min(int(self._client.hget(key, "accepted") or 0) for key in self._keys)

    @property
    def is_marked(self) -> bool:
        """Whether all shards store a time that the clock guard has trusted."""
        return all(self._client.hexists(key, "high") for key in self._keys)

    @property
    def is_shown_as_held(self) -> bool:
        """Whether all shards store that the clock guard holds."""
        return all(self._client.hexists(key, "held") for key in self._keys)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.wait(0.003):
            self._write()

    def _write(self) -> None:
        with self._lock:
            for key in self._keys:
                self._client.hset(key, "now", int(self.now.timestamp() * 1000))


class Driver(Process):
    """An event process that uses the stepped clock."""

    def __init__(self, server: PrivateServer, log: Path) -> None:
        arguments = [server.url, NAMESPACE, str(log.with_suffix(".lock"))]
        command = [sys.executable, "-m", "tests.fault.manual_clock_event_process", *arguments]
        super().__init__(log.name, command, log.parent, cwd=ROOT)

    def wait_until_logged(self, text: str) -> None:
        eventually(lambda: text in self.log, f"the event process logs {text!r}")

    def accept_step(self) -> None:
        self.send_signal(signal.SIGUSR1)


@pytest.fixture
def private() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        yield server


@pytest.fixture
def clock(private: PrivateServer) -> Iterator[SteppedClock]:
    clock = SteppedClock(private)
    yield clock
    clock.close()


@pytest.fixture
def guard(request: pytest.FixtureRequest) -> timedelta | None:
    value: timedelta | None = getattr(request, "param", None)
    return value


@pytest.fixture
def jobs(private: PrivateServer, clock: SteppedClock, guard: timedelta | None) -> Iterator[Queue]:
    with Tickwheel(private.url, namespace=NAMESPACE, clock=FRAGMENT, clock_guard=guard) as tickwheel:
        yield tickwheel.create_queue("jobs")


@contextmanager
def run_driver(server: PrivateServer, log: Path) -> Iterator[Driver]:
    """Run an event process that has claimed the shard, and kill it at the end."""
    with server.client() as client:
        before = fence(client, NAMESPACE)
        driver = Driver(server, log)
        driver.start()
        try:
            wait_for_a_claim(client, NAMESPACE, before)
            yield driver
        finally:
            driver.kill()


def state(queue: Queue, id: str) -> str:
    return queue.get(id).state


def wait_until_pending(queue: Queue, id: str) -> None:
    eventually(lambda: state(queue, id) == "pending", f"{id} is promoted")


def wait_until(moment: datetime) -> None:
    """Wait until this host's clock has passed a moment."""
    eventually(lambda: datetime.now(UTC) > moment, f"the host clock passes {moment}")


def accept_an_hour(clock: SteppedClock, driver: Driver) -> None:
    """Step the clock an hour ahead, and accept the step as an operator does."""
    clock.step_to(HOUR)
    driver.wait_until_logged("promotion is held")
    driver.accept_step()
    eventually(lambda: clock.accepted_ms > 0, "the shard stores the accepted step")


def test_promotion_is_held_after_a_step_forward_until_the_clock_agrees_again(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    jobs.enqueue(id="driven", delay=SECOND / 10)
    with run_driver(private, tmp_path / "log") as driver:
        wait_until_pending(jobs, "driven")
        due = datetime.now(UTC) + 3 * SECOND
        jobs.enqueue(id="soon", due=due)
        jobs.enqueue(id="within the step", due=datetime.now(UTC) + HOUR / 2)
        clock.step_to(HOUR)
        driver.wait_until_logged("promotion is held")
        # A message that is due only by the stepped clock is not delivered immediately either.
        assert jobs.enqueue(id="enqueued within the step", due=datetime.now(UTC) + HOUR / 2).state == "invisible"

        wait_until(due + SECOND)
        assert jobs.counts()["pending"] == 1

        clock.step_to(timedelta())
        driver.wait_until_logged("agrees with the trusted time again; promotion resumes")
        wait_until_pending(jobs, "soon")
        assert {state(jobs, id) for id in ("within the step", "enqueued within the step")} == {"invisible"}


def test_a_step_accepted_for_one_shard_is_also_accepted_for_the_other_shards(
    private: PrivateServer, tmp_path: Path
) -> None:
    with (
        Tickwheel(private.url, namespace=NAMESPACE, shards=2, clock=FRAGMENT) as tickwheel,
        closing(SteppedClock(private, shards=2)) as clock,
        run_driver(private, tmp_path / "log") as driver,
    ):
        jobs = tickwheel.create_queue("jobs")
        of_shard = {shard_of("jobs", id.encode(), 2): id for id in map(str, range(20))}
        # The event process checks only shard 0 within seconds. Shard 1 is idle.
        jobs.enqueue(id=of_shard[0], due=datetime.now(UTC) + 3 * SECOND)
        clock.step_to(HOUR)
        driver.wait_until_logged("shard 0: the server's clock stepped")
        driver.accept_step()
        driver.wait_until_logged("shard 0: the server's clock was accepted")
        jobs.enqueue(id=of_shard[1], due=clock.now + SECOND / 10)
        wait_until_pending(jobs, of_shard[1])
        eventually(lambda: clock.accepted_ms > 0, "both shards store the accepted step")


def test_a_step_accepted_by_an_operator_stays_accepted_for_the_next_event_process(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    jobs.enqueue(id="within the step", delay=HOUR / 2)
    with run_driver(private, tmp_path / "first") as driver:
        accept_an_hour(clock, driver)
        wait_until_pending(jobs, "within the step")

    jobs.enqueue(id="between the processes", delay=SECOND / 10)
    with run_driver(private, tmp_path / "second") as driver:
        wait_until_pending(jobs, "between the processes")
        # A further step must be accepted separately.
        jobs.enqueue(id="within the next step", delay=HOUR / 2)
        clock.step_to(2 * HOUR)
        driver.wait_until_logged("promotion is held")
        assert state(jobs, "within the next step") == "invisible"


def test_the_next_event_process_holds_promotion_too_if_the_step_was_not_accepted(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    jobs.enqueue(id="within the step", delay=HOUR / 2)
    with run_driver(private, tmp_path / "first") as driver:
        clock.step_to(HOUR)
        driver.wait_until_logged("promotion is held")
    with run_driver(private, tmp_path / "second") as driver:
        driver.wait_until_logged("promotion is held")
        assert state(jobs, "within the step") == "invisible"


def test_the_clock_guard_protects_due_times_from_the_first_claim_of_a_shard_on(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    # Before the first claim nobody can judge the clock, and a message that is due by this clock waits for nobody.
    assert jobs.enqueue(id="before the step", due=clock.now - SECOND).state == "pending"
    clock.step_to(HOUR)
    assert jobs.enqueue(id="before the claim", due=clock.now - SECOND).state == "pending"
    with run_driver(private, tmp_path / "log") as driver:
        driver.wait_until_logged("promotion is held")
        eventually(lambda: clock.is_marked, "the claim stores the time that the clock guard trusts")
        assert jobs.enqueue(id="within the step", due=datetime.now(UTC) + HOUR / 2).state == "invisible"
        eventually(lambda: clock.is_shown_as_held, "the shard shows that the guard holds")
        clock.step_to(timedelta())
        eventually(lambda: not clock.is_shown_as_held, "the shard shows that the guard no longer holds")


def test_doctor_names_the_shard_whose_clock_guard_holds_until_the_clock_agrees_again(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(private, tmp_path / "log") as driver:
        jobs.enqueue(id="within the step", delay=HOUR / 2)
        assert "clock guard" not in doctor_findings(private)
        clock.step_to(HOUR)
        driver.wait_until_logged("promotion is held")
        eventually(lambda: clock.is_shown_as_held, "the shard shows that the guard holds")
        findings = doctor_findings(private)
        guard = findings["clock guard"]
        assert guard["verdict"] == "bad"
        size = re.match(r"shard 0: the server's clock stepped ([\d,]+) ms ahead", guard["text"])
        assert size is not None
        assert abs(int(size[1].replace(",", "")) - HOUR // MS) < 1_000
        # Doctor compares this host's clock with the real clock of the server, which has no step.
        assert "agrees with this host's clock now" in guard["text"]
        assert findings["driver"]["verdict"] == "ok"
        assert "the clock guard of the last one held" in jobs.explain("within the step").reason
        # However long the guard holds, the size is that of the step.
        wait_until(datetime.now(UTC) + SECOND)
        assert doctor_findings(private)["clock guard"] == guard
        clock.step_to(timedelta())
        eventually(lambda: "clock guard" not in doctor_findings(private), "doctor no longer names the shard")


def doctor_findings(server: PrivateServer) -> dict[str, dict[str, str]]:
    """Return the findings of `tickwheel doctor --quick`, by the name of the check."""
    arguments = ["doctor", "--url", server.url, "--namespace", NAMESPACE, "--quick", "--json"]
    # A context of its own, because the option --json sets a context variable.
    result = copy_context().run(CliRunner().invoke, app, arguments)
    return {finding["check"]: finding for finding in json.loads(result.stdout)}


def test_an_accepted_step_is_forgotten_when_the_clocks_agree_again(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(private, tmp_path / "first") as driver:
        jobs.enqueue(id="within the step", delay=HOUR / 2)
        accept_an_hour(clock, driver)
        clock.step_to(timedelta())
        jobs.enqueue(id="after the correction", delay=SECOND / 10)
        wait_until_pending(jobs, "after the correction")
        eventually(lambda: clock.accepted_ms == 0, "the accepted step is forgotten")

    jobs.enqueue(id="within the same step", delay=HOUR / 2)
    clock.step_to(HOUR)
    with run_driver(private, tmp_path / "second") as driver:
        driver.wait_until_logged("promotion is held")
        assert state(jobs, "within the same step") == "invisible"


def test_a_clock_step_back_makes_messages_late_and_never_early(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(private, tmp_path / "log"):
        jobs.enqueue(id="before", delay=3 * SECOND)
        clock.step_to(-HOUR)
        jobs.enqueue(id="after", delay=SECOND)
        enqueued = datetime.now(UTC)
        wait_until_pending(jobs, "after")
        assert datetime.now(UTC) >= enqueued + 0.99 * SECOND
        wait_until(enqueued + 4 * SECOND)
        assert state(jobs, "before") == "invisible"
        clock.step_to(timedelta())
        wait_until_pending(jobs, "before")


@pytest.mark.parametrize("guard", [timedelta(minutes=1)], indirect=True)
def test_the_clock_guard_of_the_namespace_sets_the_limit(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    jobs.enqueue(id="within the guard", delay=30 * SECOND)
    with run_driver(private, tmp_path / "log") as driver:
        started = time.monotonic()
        clock.step_to(50 * SECOND)
        wait_until_pending(jobs, "within the guard")
        assert time.monotonic() < started + 25
        jobs.enqueue(id="within the step", delay=HOUR / 2)
        clock.step_to(HOUR)
        driver.wait_until_logged("limit 60000 ms")


def test_accepting_without_a_held_step_logs_it_and_changes_nothing(
    private: PrivateServer, clock: SteppedClock, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(private, tmp_path / "log") as driver:
        driver.accept_step()
        driver.wait_until_logged("there is no step of a server's clock to accept")
        jobs.enqueue(id="within the step", delay=HOUR / 2)
        clock.step_to(HOUR)
        driver.wait_until_logged("promotion is held")
