"""How a message ends if the result backend of Celery fails, or no worker has the task of the call."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import signals, states
from celery.exceptions import NotRegistered, SoftTimeLimitExceeded

from tests.support.celery_app import make_celery_app
from tickwheel.celery import migrate, result_store
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks import TaskApp
from tickwheel.tasks.exceptions import TimeLimitExceeded
from tickwheel.testing.task_tester import TaskTester

pytestmark = [
    pytest.mark.integration,
    # The tracer of Celery reports errors of the backend as warnings, too.
    pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning"),
]

NOT_STORED = "the task succeeded, but its result was not stored: ConnectionError: no backend"


NO_ARGUMENTS = "[[], {}, {}]"


class Outage:
    """Fails the calls of a result backend that store one of these states, ``times`` times."""

    error: BaseException = ConnectionError("no backend")

    def __init__(self, backend: Any, monkeypatch: pytest.MonkeyPatch, *of: str, times: int = 100) -> None:
        self.states, self.times = of, times
        self._store = backend.store_result
        monkeypatch.setattr(backend, "store_result", self._store_result)

    def _store_result(self, id_: str, result: Any, state: str, *args: Any, **options: Any) -> Any:
        if state in self.states and self.times:
            self.times -= 1
            raise self.error
        return self._store(id_, result, state, *args, **options)


@pytest.fixture
def no_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores a result only once, as after the time of the repetition."""
    monkeypatch.setattr(result_store, "REPEAT_S", 0.0)


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Any:
    celery = make_celery_app(monkeypatch)
    celery.conf.result_backend = "cache+memory://"
    return celery


@pytest.fixture
def app() -> TaskApp:
    return TaskApp()


@pytest.fixture
def tasks(celery: Any, app: TaskApp, tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> TaskTester:
    """Runs the tasks ``add``, and ``again``, which retries itself once. Their calls go to Tickwheel."""

    def add(a: int, b: int) -> int:
        return a + b

    def again(self: Any) -> None:
        if not self.request.retries:
            raise self.retry(countdown=30)

    celery.task(name="add")(add)
    celery.task(name="again", bind=True)(again)
    migrate(celery, app)
    tasks = tickwheel_tasks(app)
    for name in ("add", "again"):
        app.route(name, to="tickwheel")
    return tasks


def test_a_short_outage_of_the_result_backend_delays_the_result_of_a_task_that_succeeded(
    celery: Any, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[Any] = []

    def on_success(result: Any, **_: Any) -> None:
        handled.append(result)

    signals.task_success.connect(on_success)
    sent = celery.tasks["add"].delay(1, 2)
    Outage(celery.backend, monkeypatch, states.SUCCESS, times=2)
    [outcome] = tasks.run_due()
    assert (outcome.error, sent.state, sent.result, handled) == (None, states.SUCCESS, 3, [3])
    [line] = [record for record in caplog.records if record.name == "tickwheel.celery"]
    assert f"cannot store the result of call {sent.id}, whose task has succeeded; trying again" in line.message


@pytest.mark.usefixtures("no_repetition")
@pytest.mark.parametrize("is_back", [False, True])
def test_a_task_that_succeeded_is_not_called_failed_if_its_result_cannot_be_stored(
    celery: Any, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_back: bool
) -> None:
    sent = celery.tasks["add"].delay(1, 2)
    Outage(celery.backend, monkeypatch, states.SUCCESS, states.FAILURE, times=1 if is_back else 100)
    [outcome] = tasks.run_due()
    assert (outcome.error, outcome.final) == (NOT_STORED, True)
    [line] = [record for record in caplog.records if record.name == "tickwheel.worker"]
    assert NOT_STORED in line.message
    assert line.exc_info is None
    # As in Celery: the state is unknown, or that of the tracer if the backend answers again.
    assert celery.AsyncResult(sent.id).state == (states.FAILURE if is_back else states.PENDING)


@pytest.mark.parametrize("stops_after", [0, 3])
def test_the_result_of_a_task_is_stored_once_more_when_the_process_stops_and_the_task_does_not_run_again(
    celery: Any, app: TaskApp, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch, stops_after: int
) -> None:
    monkeypatch.setattr(result_store, "_LAST_PAUSE_S", 0.01)
    celery.tasks["add"].delay(1, 2)
    outage = Outage(celery.backend, monkeypatch, states.SUCCESS)
    monkeypatch.setattr(app, "_is_stopping", lambda: 100 - outage.times > stops_after)
    [outcome] = tasks.run_due()
    assert (outcome.error, outcome.final, 100 - outage.times) == (NOT_STORED, True, stops_after + 2)


@pytest.mark.usefixtures("no_repetition")
@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (states.SUCCESS, TimeLimitExceeded()),
        # The tracer stores the error of the backend in place of the result.
        (states.FAILURE, TimeLimitExceeded()),
        (states.FAILURE, SoftTimeLimitExceeded()),
    ],
    ids=["result", "error of the backend", "soft"],
)
def test_a_time_limit_that_ends_while_the_result_is_stored_is_not_called_a_failure_of_the_task(
    celery: Any, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    sent = celery.tasks["add"].delay(1, 2)
    Outage(celery.backend, monkeypatch, states.SUCCESS)
    Outage(celery.backend, monkeypatch, failing, times=1).error = error
    [outcome] = tasks.run_due()
    assert str(outcome.error).startswith(f"the task succeeded, but its result was not stored: {type(error).__name__}")
    assert (outcome.final, sent.state) == (True, states.PENDING)


def test_a_handler_that_exceeds_the_time_limit_is_not_called_a_result_that_was_not_stored(
    celery: Any, tasks: TaskTester
) -> None:
    def on_success(**_: Any) -> None:
        raise TimeLimitExceeded

    signals.task_success.connect(on_success)
    sent = celery.tasks["add"].delay(1, 2)
    [outcome] = tasks.run_due()
    assert str(outcome.error).startswith("TimeLimitExceeded")
    # Celery does not replace a result.
    assert (outcome.final, sent.state) == (True, states.SUCCESS)


def test_a_retry_with_other_arguments_is_logged_like_an_error_of_the_task(
    celery: Any, app: TaskApp, tickwheel_tasks: Callable[[TaskApp], TaskTester], caplog: pytest.LogCaptureFixture
) -> None:
    def change(self: Any, number: int) -> None:
        raise self.retry(args=(number + 1,))

    celery.task(name="change", bind=True)(change)
    migrate(celery, app)
    tasks = tickwheel_tasks(app)
    app.route("change", to="tickwheel")
    sent = celery.tasks["change"].delay(1)
    [outcome] = tasks.run_due()
    assert (outcome.final, sent.state) == (True, states.FAILURE)
    assert "was retried with other arguments" in str(outcome.error)
    [line] = [record for record in caplog.records if record.name == "tickwheel.worker"]
    assert "was retried with other arguments" in line.message


def test_a_result_backend_that_fails_does_not_prevent_a_retry(
    celery: Any, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    celery.tasks["again"].delay()
    Outage(celery.backend, monkeypatch, states.RETRY, states.FAILURE)
    [first] = tasks.run_due()
    text = "retried, but this was not stored in the result backend: ConnectionError: no backend"
    assert (first.error, first.final) == (text, False)
    [second] = tasks.advance(31)
    assert (second.task, second.error) == ("again", None)


def test_an_error_of_the_result_backend_before_the_task_runs_is_the_error_of_the_call(
    celery: Any, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    celery.tasks["add"].track_started = True
    celery.tasks["add"].delay(1, 2)
    Outage(celery.backend, monkeypatch, states.STARTED, states.FAILURE)
    [outcome] = tasks.run_due()
    assert outcome.error == "ConnectionError: no backend"


@pytest.mark.parametrize("has_backend", [True, False])
def test_a_call_of_a_task_that_no_worker_has_fails_with_its_last_attempt(
    celery: Any,
    app: TaskApp,
    tasks: TaskTester,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_backend: bool,
) -> None:
    app.route("missing", to="tickwheel")
    sent = celery.send_task("missing", args=[1])
    if not has_backend:
        Outage(celery.backend, monkeypatch, states.FAILURE)
    outcomes = tasks.run_due()
    while not outcomes[-1].final:
        # Another worker may have the task.
        assert sent.state == states.PENDING
        outcomes += tasks.advance(60)
    assert len(outcomes) == 5
    if has_backend:
        assert sent.state == states.FAILURE
        assert isinstance(sent.result, NotRegistered)
    else:
        assert sent.state == states.PENDING
        assert f"cannot store in the result backend that call {sent.id} of task missing failed" in caplog.text


@pytest.mark.parametrize(
    ("payload", "is_stored"),
    [
        ({"task": "missing", "args": {"headers": {}, "body": NO_ARGUMENTS}}, True),
        # The calls that follow are not made: a hostile program can enqueue such a message.
        ({"task": "missing", "args": {"headers": {"chord": {"task": "add"}}, "body": NO_ARGUMENTS}}, True),
        ({"task": "missing", "args": {"headers": {"ignore_result": True}, "body": NO_ARGUMENTS}}, False),
        ({"task": "missing", "args": {"headers": None, "body": NO_ARGUMENTS}}, False),
        # The worker has the task, and refuses the arguments.
        ({"task": "add", "args": {"headers": {}, "body": NO_ARGUMENTS, "other": 1}}, False),
    ],
)
def test_only_a_call_of_celery_of_an_unknown_task_is_stored_as_failed(
    celery: Any, app: TaskApp, tasks: TaskTester, payload: dict[str, Any], is_stored: bool
) -> None:
    id_ = app.tickwheel.queue("celery").enqueue(json=payload, max_attempts=1).id
    [outcome] = tasks.run_due()
    assert outcome.final
    assert celery.AsyncResult(id_).state == (states.FAILURE if is_stored else states.PENDING)


def test_nothing_is_stored_for_a_call_of_an_unknown_task_that_was_cancelled(
    celery: Any, app: TaskApp, tasks: TaskTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.route("missing", to="tickwheel")
    sent = celery.send_task("missing")
    refused = app._on_refused

    def cancel_first(message: LeasedMessage) -> None:
        app.tickwheel.queue("celery").cancel(message.id)
        refused(message)

    monkeypatch.setattr(app, "_on_refused", cancel_first)
    while not tasks.advance(60)[-1].final:
        pass
    # `revoke` cancels the message, and then stores REVOKED.
    assert sent.state == states.PENDING


def test_a_redriven_call_runs_although_a_worker_did_not_have_its_task(
    celery: Any, app: TaskApp, tasks: TaskTester
) -> None:
    app.route("add", to="tickwheel")
    sent = celery.send_task("add", (1, 2))
    add = app.tasks.pop("add")
    outcomes = tasks.run_due()
    while not outcomes[-1].final:
        outcomes = tasks.advance(60)
    assert sent.state == states.FAILURE
    app.tickwheel.queue("celery").redrive(sent.id)
    # During a deployment, an old worker can refuse the call again.
    [refused] = tasks.run_due()
    assert not refused.final
    app.tasks["add"] = add
    tasks.advance(60)
    # `sent` keeps the state of its first end.
    assert celery.AsyncResult(sent.id).get(timeout=1) == 3
