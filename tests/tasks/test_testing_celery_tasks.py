"""The test kit runs the tasks of a Celery app that has moved: their calls go to the namespace of the test."""

from collections.abc import Callable
from typing import Any

import pytest
from celery.app import trace

from tests.support.celery_app import make_celery_app
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.testing.task_tester import TaskTester, open_task_tester

pytestmark = pytest.mark.integration


@pytest.fixture
def celery(monkeypatch: pytest.MonkeyPatch) -> Any:
    return make_celery_app(monkeypatch)


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise ValueError("no such user")


def test_moved_tasks_run_in_a_test(celery: Any, tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> None:
    moved, failing = celery.task(name="shop.add")(add), celery.task(name="shop.fail")(fail)
    app = TaskApp()
    migrate(celery, app)
    tasks = tickwheel_tasks(app)
    for name in ("shop.add", "shop.fail"):
        app.route(name, to="tickwheel")
    moved.apply_async((1, 2), countdown=60)
    failing.delay()
    assert {sent.task for sent in tasks.sent()} == {"shop.add", "shop.fail"}
    [failure] = tasks.run_due()
    assert (failure.task, failure.error, failure.final) == ("shop.fail", "ValueError: no such user", True)
    # Celery adds the countdown to its own time, which has moved on since the clock of the test was set.
    assert tasks.advance(59) == []
    [outcome] = tasks.advance(61)
    assert (outcome.task, outcome.error, outcome.result) == ("shop.add", None, "3")


def test_a_reporter_of_errors_may_replace_the_tracer_until_the_first_run(
    celery: Any, tickwheel_tasks: Callable[[TaskApp], TaskTester], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, app, traced = celery.task(name="shop.add")(add), TaskApp(), []
    migrate(celery, app)
    tasks = tickwheel_tasks(app)
    app.route("shop.add", to="tickwheel")
    build = trace.build_tracer

    def build_reporting(name: str, task: Any, **options: Any) -> Callable[..., Any]:
        tracer = build(name, task, **options)

        def report(*call: Any, **arguments: Any) -> Any:
            traced.append(name)
            return tracer(*call, **arguments)

        return report

    # As Sentry does, in its `init`.
    monkeypatch.setattr(trace, "build_tracer", build_reporting)
    moved.delay(1, 2)
    moved.delay(3, 4)
    assert [outcome.error for outcome in tasks.run_due()] == [None, None]
    assert traced == ["shop.add"] * 2


def test_each_test_has_its_own_routes(
    celery: Any, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = celery.task(name="shop.add")(add)
    app = TaskApp()
    migrate(celery, app)
    sent_to_celery: list[str] = []
    monkeypatch.setattr(celery.amqp.send_task_message, "_send", lambda _, name, *__, **___: sent_to_celery.append(name))
    for is_routed in (False, True, False):
        with sandbox(tickwheel_server) as (tickwheel, clock), open_task_tester(app, tickwheel, clock) as tasks:
            if is_routed:
                app.route("shop.add", to="tickwheel")
            moved.delay(1, 2)
            assert [sent.task for sent in tasks.sent()] == ["shop.add"] * is_routed
    assert sent_to_celery == ["shop.add"] * 2
