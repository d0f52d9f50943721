"""Which calls of a Celery app may wait in a worker behind other calls, and how many messages a worker takes at once."""

from typing import Any

import pytest

from tests.support.celery_app import make_celery_app
from tickwheel.celery import task_adapter
from tickwheel.celery.celery_message import CeleryMessage
from tickwheel.celery.failure_record import max_attempts
from tickwheel.celery.prefetch import may_wait
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks import TaskApp
from tickwheel.tasks.task_queue import TaskQueue

pytestmark = pytest.mark.unit
UNREACHABLE = "redis://127.0.0.1:1"


def nothing() -> None:
    pass


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Any:
    return make_celery_app(monkeypatch)


def leased_message(payload: bytes, attempt: int = 1, own_limit: int = 0) -> LeasedMessage:
    message = LeasedMessage.by_lease("celery", 1, "one", None, b"t" * 16, attempt)
    message.payload, message._max_attempts = payload, own_limit
    return message


def test_a_worker_takes_the_messages_of_a_queue_one_at_a_time_if_a_task_of_it_may_run_only_once(celery: Any) -> None:
    celery.task(name="once", max_retries=0)(nothing)
    celery.task(name="also.there")(nothing)
    celery.task(name="often")(nothing)
    celery.task(name="once.elsewhere", max_retries=0)(nothing)
    routes = {"once": "single", "also.there": "single", "often": "many", "once.elsewhere": "own"}
    celery.conf.task_routes = {task: {"queue": queue} for task, queue in routes.items()}
    app = TaskApp(UNREACHABLE)
    app.queue("own", batch=7)
    task_adapter.declare(celery, app, {"single": "mapped"})
    batches = {name: queue.batch for name, queue in app.queues.items()}
    assert batches == {"own": 7, "celery": 4, "mapped": 1, "many": 4}


@pytest.mark.parametrize(
    ("max_retries", "retries", "attempt", "waits"),
    [
        (0, 0, 1, False),
        (3, 0, 1, True),
        (3, 0, 3, True),
        (3, 0, 4, False),
        # The failure is left to record.
        (3, 0, 5, False),
        # Three retries were made by Celery, before the call was moved.
        (3, 3, 1, False),
        (None, 0, 900, True),
    ],
)
def test_a_call_waits_only_if_it_may_run_again_after_this_delivery(
    celery: Any, max_retries: int | None, retries: int, attempt: int, waits: bool
) -> None:
    task = celery.task(name="some.task", max_retries=max_retries)(nothing)
    call = CeleryMessage({"task": "some.task", "id": "one", "retries": retries}, "[[], {}, {}]")
    message = leased_message(call.payload(), attempt, max_attempts(task, retries) or 0)
    assert may_wait(celery.tasks, {}, message) is waits


@pytest.mark.parametrize(
    ("declared", "attempt", "waits"),
    [
        ({}, 3, True),
        # The last attempt of the queue, by default the fifth, does not run the task.
        ({}, 4, False),
        ({"max_attempts": 12}, 4, True),
        ({"max_attempts": 12}, 11, False),
        ({"max_attempts": 1}, 1, False),
    ],
)
def test_the_queue_limits_the_runs_of_a_call_without_a_limit_of_its_own(
    celery: Any, declared: dict[str, int], attempt: int, waits: bool
) -> None:
    celery.task(name="some.task", max_retries=20)(nothing)
    call = CeleryMessage({"task": "some.task", "id": "one"}, "[[], {}, {}]")
    queues = {"celery": TaskQueue("celery", config=declared)}
    assert may_wait(celery.tasks, queues, leased_message(call.payload(), attempt)) is waits


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"task":["once"],"args":{}}',
        b'{"task":"once"}',
        b'{"task":"once","args":{"headers":[]}}',
        b'{"task":"once","args":{"headers":{"retries":"x"}}}',
        b'{"task":"once","args":{"headers":{"retries":Infinity}}}',
        b'{"task":"other","args":{"headers":{}}}',
    ],
)
def test_a_message_that_is_no_call_of_a_task_may_wait(celery: Any, payload: bytes) -> None:
    celery.task(name="once", max_retries=0)(nothing)
    assert may_wait(celery.tasks, {}, leased_message(payload))


def test_a_worker_asks_whether_a_message_may_wait(celery: Any) -> None:
    celery.task(name="once", max_retries=0)(nothing)
    app = TaskApp(UNREACHABLE)
    task_adapter.declare(celery, app, {})
    call = CeleryMessage({"task": "once", "id": "one"}, "[[], {}, {}]")
    assert app._may_wait is not None
    assert not app._may_wait(leased_message(call.payload()))
