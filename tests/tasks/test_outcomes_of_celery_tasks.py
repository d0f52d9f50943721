"""How a message ends if the result backend of Celery fails, or the call has expired."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import states

from tests.support.celery_app import make_celery_app
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp
from tickwheel.testing.task_tester import TaskTester

pytestmark = [
    pytest.mark.integration,
    # The tracer of Celery reports errors of the backend as warnings, too.
    pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning"),
]

NOT_STORED = "the task succeeded, but its result was not stored: ConnectionError: no backend"


class Outage:
    """Fails the calls of a result backend that store one of these states, ``times`` times."""

    def __init__(self, backend: Any, monkeypatch: pytest.MonkeyPatch, *of: str, times: int = 100) -> None:
        self.states, self.times = of, times
        self._store = backend.store_result
        monkeypatch.setattr(backend, "store_result", self._store_result)

    def _store_result(self, id_: str, result: Any, state: str, *args: Any, **options: Any) -> Any:
        if state in self.states and self.times:
            self.times -= 1
            raise ConnectionError("no backend")
        return self._store(id_, result, state, *args, **options)


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Any:
    celery = make_celery_app(monkeypatch)
    celery.conf.result_backend = "cache+memory://"
    return celery


@pytest.fixture
def tasks(celery: Any, tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> TaskTester:
    """Runs the tasks ``add``, and ``again``, which retries itself once. Their calls go to Tickwheel."""

    def add(a: int, b: int) -> int:
        return a + b

    def again(self: Any) -> None:
        if not self.request.retries:
            raise self.retry(countdown=30)

    celery.task(name="add")(add)
    celery.task(name="again", bind=True)(again)
    app = TaskApp()
    migrate(celery, app)
    tasks = tickwheel_tasks(app)
    for name in ("add", "again"):
        app.route(name, to="tickwheel")
    return tasks


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
