"""Tasks with settings that Tickwheel does not apply stay with Celery, and workers name them."""

import logging
from contextlib import ExitStack
from datetime import timedelta

import pytest
from celery import Celery

from tests.integration.migration import shop
from tests.integration.migration.conftest import BROKER, Shop, finish_checks, forget_connections, route
from tests.support.children import children_of
from tests.support.wait_until import eventually
from tickwheel import IdConflict
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.integration


def test_a_task_with_a_rate_limit_stays_with_celery_and_is_named_once(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    route("held.limited", "tickwheel")
    with caplog.at_level(logging.WARNING, "tickwheel.celery"):
        for _ in range(3):
            shop.limited.delay()
    assert deployment.broker.llen("celery") == 3
    warnings = (record for record in caplog.records if record.levelno == logging.WARNING)
    [line] = [record.getMessage() for record in warnings if record.name == "tickwheel.celery"]
    assert "calls of task held.limited stay with Celery: it has the rate_limit 100/s" in line
    assert "carries_over={'held.limited'}" in line


def test_a_program_logs_an_error_once_if_it_calls_a_task_that_stays_and_no_worker_of_celery_answers(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    route("held.limited", "tickwheel")

    def errors() -> list[str]:
        own = (record for record in caplog.records if record.name == "tickwheel.celery")
        return [record.getMessage() for record in own if record.levelno == logging.ERROR]

    for _ in range(2):
        shop.limited.delay()
    [line] = eventually(errors, "the error is logged")
    assert "no worker of Celery answers" in line
    assert "held.limited (it has the rate_limit 100/s)" in line
    with deployment.celery_worker():
        assert shop.limited.delay().get(timeout=60) == "limited"
        forget_connections()
        # As in a program that has just started.
        assert shop.limited.delay().get(timeout=60) == "limited"
        finish_checks()
    assert errors() == [line]


def test_a_task_that_carries_over_moves_without_its_rate_limit_also_if_its_app_was_in_use_before(
    deployment: Shop,
) -> None:
    def nothing() -> None: ...

    with (
        Celery("late", broker=deployment.celery_url(BROKER), set_as_current=False) as celery,
        TaskApp(deployment.url, namespace=deployment.namespace) as app,
    ):
        limited = celery.task(name="late.limited", rate_limit="2/s")(nothing)
        app.route("late.limited", to="tickwheel")
        limited.delay()
        assert deployment.broker.llen("celery") == 1
        migrate(celery, app, carries_over={"late.limited"})
        sent = limited.delay()
    assert deployment.tickwheel.queue("celery").get(sent.id).state == "pending"
    assert deployment.broker.llen("celery") == 1


def test_a_worker_does_not_start_if_a_route_goes_back_to_celery_and_no_worker_of_celery_answers(
    deployment: Shop,
) -> None:
    route("held.limited", "tickwheel")
    worker = deployment.tickwheel_worker()
    worker.launch()
    assert worker.wait(60) != 0
    assert "task 'held.limited' is routed to Tickwheel, but stays with Celery" in worker.log
    assert "tickwheel route unset held.limited" in worker.log
    with deployment.celery_worker(), worker:
        eventually(lambda: "held.limited (it has the rate_limit 100/s)" in worker.log, worker.log, 60)
        sent = shop.limited.delay()
        assert sent.get(timeout=60) == "limited"
        assert worker.is_running


def test_a_worker_starts_although_tasks_are_not_allowed_and_names_them(deployment: Shop) -> None:
    with deployment.tickwheel_worker() as worker:
        eventually(lambda: "tasks: " in worker.log, worker.log, 60)
        assert worker.stop(30) == 0
    assert "held.elsewhere (its queue cannot move: a queue's name must have" in worker.log
    assert "held.lengthy (it has a time limit of 691,200 s" in worker.log


def test_a_running_worker_starts_processes_while_the_workers_of_celery_are_down_and_names_the_tasks_once(
    deployment: Shop,
) -> None:
    route("held.limited", "tickwheel")
    route("shop.killed", "tickwheel")
    with deployment.event_process(), ExitStack() as running:
        with deployment.celery_worker():
            worker = running.enter_context(deployment.tickwheel_worker("--processes", "2"))
            assert shop.killed.delay(times=0).get(timeout=60) == "done"
        assert shop.killed.delay(times=1).get(timeout=60) == "done"
        eventually(lambda: len(children_of(worker.pid)) == 2, "the killed process is replaced", 30)
        assert worker.stop(30) == 0
    assert worker.log.count("these tasks stay with Celery") == 1
    assert "No worker of Celery answers" not in worker.log


def test_a_repeated_call_with_a_countdown_is_the_same_call(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    for _ in range(2):
        shop.note.apply_async(("x",), task_id="one", countdown=60)
    assert deployment.tickwheel.queue("celery").counts()["invisible"] == 1
    with pytest.raises(IdConflict):
        shop.note.apply_async(("other",), task_id="one", countdown=60)


def test_the_replacement_of_a_running_call_runs_in_celery_with_its_id(deployment: Shop) -> None:
    route("shop.replaced", "tickwheel")
    route("shop.note", "tickwheel")
    with deployment.event_process(), deployment.celery_worker(), deployment.tickwheel_worker():
        sent = shop.replaced.apply_async(countdown=timedelta(seconds=0.1).total_seconds())
        assert sent.get(timeout=60) == "noted instead"
        assert deployment.ends(sent.id).state == "completed"
    assert deployment.ran(sent.id) == {sent.id: ["tickwheel", "celery"]}
