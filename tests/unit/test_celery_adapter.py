"""A worker of Celery tasks, without a server: the current app, retries, and the end of revoked calls."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet
from zoneinfo import ZoneInfo

import celery as celery_package
import pytest
from celery import shared_task
from celery.utils.time import maybe_iso8601, maybe_make_aware

from tests.support.celery_app import make_celery_app
from tickwheel import Unavailable
from tickwheel.celery import migrate, task_adapter
from tickwheel.celery.celery_message import parse_time
from tickwheel.celery.revoked_calls import CallStopped, Stopper, _WatchedCall, request_of
from tickwheel.tasks import TaskApp
from tickwheel.tasks.run_context import Run
from tickwheel.worker import time_limit
from tickwheel.worker.time_limit import ThreadLimits

pytestmark = pytest.mark.unit
UNREACHABLE = "redis://127.0.0.1:1"


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Any:
    return make_celery_app(monkeypatch)


def test_every_thread_of_a_worker_has_the_app_as_its_current_app(celery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A shared task is declared in all apps of the process.
    monkeypatch.setattr(celery_package._state, "_apps", WeakSet([celery]))

    def library_task() -> None:
        pass

    shared: Any = shared_task(name="library.shared")(library_task)
    task_adapter.declare(celery, TaskApp(UNREACHABLE), {})
    with ThreadPoolExecutor(1) as consumers:
        assert consumers.submit(lambda: shared.app).result() is celery


NOT_ALLOWED: dict[str, dict[str, Any]] = {
    "queue": {"queue": "a:b"},
    "queue of the schedules": {"queue": "schedules"},
    "name": {"name": "n" * 129},
}


@pytest.mark.parametrize("setting", NOT_ALLOWED)
def test_a_task_that_tickwheel_does_not_allow_is_left_out_and_the_others_are_declared(
    celery: Any, setting: str
) -> None:
    def nothing() -> None: ...

    celery.task(name="allowed")(nothing)
    celery.task(**{"name": "not.allowed", **NOT_ALLOWED[setting]})(nothing)
    app = TaskApp(UNREACHABLE)
    task_adapter.declare(celery, app, {})
    assert (list(app.tasks), list(app.queues)) == (["allowed"], ["celery"])


def test_a_task_is_declared_if_its_queue_is_mapped_to_an_allowed_name(celery: Any) -> None:
    def nothing() -> None: ...

    celery.task(name="mapped", queue="a:b")(nothing)
    app = TaskApp(UNREACHABLE)
    task_adapter.declare(celery, app, {"a:b": "a-b"})
    assert app.tasks["mapped"].queue == "a-b"


@pytest.mark.parametrize(
    ("own", "of_app", "declared_s"),
    [(691_200, None, 604_800), (None, 1e300, 604_800), (None, None, 604_800), (60, 691_200, 60), (None, 0.5, 0.5)],
)
def test_a_task_has_its_time_limit_and_at_most_the_longest_one(
    celery: Any, own: float | None, of_app: float | None, declared_s: float
) -> None:
    def nothing() -> None: ...

    celery.conf.task_time_limit = of_app
    celery.task(name="limited", time_limit=own)(nothing)
    app = TaskApp(UNREACHABLE)
    task_adapter.declare(celery, app, {})
    assert app.tasks["limited"].time_limit.total_seconds() == declared_s


def test_an_app_is_loaded_without_a_request_although_a_task_stays_with_celery(
    celery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """So a command can check or complete the name of a task while no worker of Celery runs."""

    def limited() -> None: ...

    celery.task(name="limited", rate_limit="2/s")(limited)
    app = TaskApp(UNREACHABLE, timeout=0.05)
    migrate(celery, app)
    app.load()
    assert "limited" in app.tasks
    # A worker then makes the request.
    [check] = app._start_checks
    with pytest.raises(Unavailable):
        check(False)
    # The later processes of the worker do not.
    check(True)
    assert caplog.text.count("these tasks stay with Celery") == 1


@pytest.mark.parametrize("text", ["2030-06-01T12:00:00", "2030-06-01T12:00:00.5+02:00", "2030-06-01T12:00:00+00:00"])
def test_the_times_of_calls_are_those_of_celerys_worker(text: str) -> None:
    # `celery.worker.request` does this.
    in_celery = maybe_make_aware(maybe_iso8601(text), ZoneInfo("Europe/Berlin"))
    assert parse_time("eta", text) == in_celery


def test_the_eta_of_a_retry_without_a_time_zone_is_utc() -> None:
    call = task_adapter._CurrentCall("one", 0, [[], {}], {}, may_run_again=True)
    headers = {"id": "one", "retries": 1, "eta": "2030-01-01T12:00:00"}
    message = SimpleNamespace(headers=headers, body=((), {}, {}))
    token = task_adapter._current_call.set(call)
    try:
        assert task_adapter.is_retry(message)
    finally:
        task_adapter._current_call.reset(token)
    assert call.retry_at == datetime(2030, 1, 1, 12, tzinfo=UTC)


class SlowBackend:
    """A result backend that stores REVOKED some time after the message was cancelled."""

    def __init__(self) -> None:
        self.states = ["PENDING", "STARTED", "REVOKED"]

    def get_task_meta(self, id_: str, cache: bool = True) -> dict[str, Any]:
        return {"status": self.states.pop(0) if len(self.states) > 1 else self.states[0]}


def run_until_stopped(backend: Any, seconds: float) -> bool:
    task = SimpleNamespace(name="slow", backend=backend)
    run = Run(task, SimpleNamespace(id="one"), is_lost=lambda: True)  # type: ignore[arg-type]  # only these are read
    try:
        with time_limit._installed[0](60), Stopper().watch(task, run):  # type: ignore[operator]
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                pass
    except CallStopped:
        return True
    return False


def test_a_call_is_stopped_if_its_state_is_stored_after_its_message_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_limit, "_installed", [ThreadLimits()])
    with ThreadPoolExecutor(1) as consumers:
        assert consumers.submit(run_until_stopped, SlowBackend(), 20).result()


def test_the_state_of_a_call_that_has_lost_its_lease_is_read_a_limited_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tickwheel.celery.revoked_calls._TICK_S", 0.001)
    monkeypatch.setattr("tickwheel.celery.revoked_calls._MAX_PAUSE_S", 0.5)
    monkeypatch.setattr(time_limit, "_installed", [ThreadLimits()])
    backend = SlowBackend()
    backend.states = ["STARTED"] * 100
    assert not run_until_stopped(backend, 2)
    assert len(backend.states) in range(90, 99)


def test_a_call_whose_lease_becomes_good_again_is_watched_as_before() -> None:
    lost = [True]
    run = Run(SimpleNamespace(), SimpleNamespace(), is_lost=lambda: lost[0])  # type: ignore[arg-type]  # not read
    call = _WatchedCall(SimpleNamespace(), run, lambda: None)
    now, reads = 0.0, 0
    while call.read_at < inf:
        now = max(now, call.read_at)
        assert call.must_read(now)
        call.wait(now)
        reads += 1
    assert (reads, call.must_read(now + 3_600)) == (7, False)
    lost[0] = False
    assert not call.must_read(now)
    lost[0] = True
    assert call.must_read(now)


def test_a_body_that_is_nested_too_deeply_is_no_call() -> None:
    body = "[" * 200_000
    assert request_of("one", json.dumps({"task": "t", "args": {"headers": {}, "body": body}}).encode()) is None


@pytest.mark.parametrize(("kind", "value"), [("decimal", "x"), ("bytes", 7), ("uuid", {"hex": 7}), ("unknown", 1)])
def test_an_argument_that_cannot_be_decoded_makes_no_call(kind: str, value: Any) -> None:
    body = json.dumps([[{"__type__": kind, "__value__": value}], {}, {}])
    assert request_of("one", json.dumps({"task": "t", "args": {"headers": {}, "body": body}}).encode()) is None


def test_the_request_of_a_call_names_no_calls_that_follow() -> None:
    """Celery's backends make the calls of a chord when they record the end of one of its members."""
    headers = {"group": "g", "chord": {"task": "t"}, "errbacks": [{"task": "t"}], "root_id": "r"}
    body = json.dumps([[], {}, {"callbacks": [{"task": "t"}], "chain": [{"task": "t"}]}])
    request = request_of("one", json.dumps({"task": "t", "args": {"headers": headers, "body": body}}).encode())
    assert request is not None
    assert request["root_id"] == "r"
    assert not {"group", "chord", "callbacks", "errbacks", "chain"} & set(request)
