"""Which tasks stay with Celery, who runs them, how often a call may run, and the arguments that `migrate` refuses."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from tests.support.refused_threads import no_more_threads
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument
from tickwheel.celery import migrate
from tickwheel.celery.carry_over import Stay, UnansweredCalls, advice, check_tasks, why_task_stays
from tickwheel.celery.failure_record import max_attempts, runs_allowed
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.unit


def nothing() -> None:
    pass


def task_with(**options: Any) -> Any:
    celery: Any = Celery("app", set_as_current=False)
    return celery.task(name="some.task", **options)(nothing)


STAYING: dict[str, tuple[dict[str, Any], str]] = {
    "rate limit": ({"rate_limit": "2/s"}, "the rate_limit 2/s"),
    "strategy": ({"Strategy": "celery_batches:Strategy"}, "its own Strategy, celery_batches:Strategy"),
    "request": ({"Request": "shop:OwnRequest"}, "its own Request, shop:OwnRequest"),
    "repeated": ({"acks_late": True, "acks_on_timeout": False, "time_limit": 3}, "acks_on_timeout=False"),
    "time limit": ({"time_limit": 691_200}, "a time limit of 691,200 s, and Tickwheel allows at most 7 days"),
}


def reason_of(task: Any, queues: Mapping[str, str] = MappingProxyType({}), carries_over: Collection[str] = ()) -> str:
    stay = why_task_stays(task, TaskApp(), queues, carries_over)
    return "" if stay is None else stay.reason


@pytest.mark.parametrize("setting", STAYING)
def test_a_task_with_a_setting_that_tickwheel_ignores_stays_unless_it_is_named(setting: str) -> None:
    options, reason = STAYING[setting]
    task = task_with(**options)
    assert reason in reason_of(task)
    assert reason_of(task, carries_over={"some.task"}) == ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"acks_late": True, "time_limit": 3, "soft_time_limit": 2, "expires": 60},
        {"reject_on_worker_lost": True, "ignore_result": True, "track_started": True, "max_retries": None},
        {"acks_late": True, "acks_on_timeout": False},
        {"time_limit": 604_800, "queue": "other"},
    ],
)
def test_a_task_with_other_settings_moves(options: dict[str, Any]) -> None:
    assert reason_of(task_with(**options)) == ""


def test_the_rate_limit_of_all_tasks_of_an_app_counts() -> None:
    celery: Any = Celery("app", set_as_current=False)
    celery.conf.task_default_rate_limit = "5/m"
    assert reason_of(celery.task(name="some.task")(nothing)) == "it has the rate_limit 5/m"


def test_the_time_limit_of_all_tasks_of_an_app_counts() -> None:
    celery: Any = Celery("app", set_as_current=False)
    celery.conf.task_time_limit = 691_200
    assert "a time limit of 691,200 s" in reason_of(celery.task(name="some.task")(nothing))
    assert reason_of(celery.task(name="other.task", time_limit=60)(nothing)) == ""


def test_a_task_whose_queue_tickwheel_does_not_allow_stays_unless_its_queue_is_mapped() -> None:
    task = task_with(queue="a:b")
    reason = "its queue cannot move: a queue's name must have"
    assert reason in reason_of(task)
    assert reason in reason_of(task, carries_over={"some.task"})
    assert reason_of(task, {"a:b": "a-b"}) == ""
    assert "queue 'schedules' is reserved for the schedules" in reason_of(task_with(queue="schedules"))


def test_a_task_stays_if_tickwheel_does_not_allow_its_name() -> None:
    celery: Any = Celery("app", set_as_current=False)
    assert "a task's name must be 1 to 128 bytes" in reason_of(celery.task(name="n" * 129)(nothing))


def test_a_router_that_needs_the_arguments_of_a_call_is_no_reason() -> None:
    celery: Any = Celery("app", set_as_current=False)
    celery.conf.task_routes = [lambda name, args, *more, **options: {"queue": args[0]}]
    assert reason_of(celery.task(name="some.task")(nothing)) == ""


def test_the_advice_has_the_remedy_of_each_reason() -> None:
    mapping = "set another name: migrate(…, queues={'a:b': …})"
    stays = {"mail.first": Stay("it has the rate_limit 2/s"), "mail.second": Stay("its queue cannot move", mapping)}
    first = "to route it without this setting, pass migrate(…, carries_over={'mail.first'})"
    assert advice(stays) == f"{first}, or {mapping}"
    assert advice({"mail.second": stays["mail.second"]}) == mapping


def celery_that(ping: Callable[..., Any]) -> Any:
    return SimpleNamespace(control=SimpleNamespace(ping=ping))


def test_an_error_names_each_staying_task_once_if_no_worker_of_celery_answers(caplog: pytest.LogCaptureFixture) -> None:
    may_answer = threading.Event()

    def ping(timeout: float) -> list[Any]:
        may_answer.wait(20)
        return []

    calls = UnansweredCalls(celery_that(ping))
    calls.check("mail.first", Stay("it has the rate_limit 2/s"))
    # The first check has begun, so a second one has the tasks that are added meanwhile.
    eventually(lambda: not calls._reasons, "the first check begins")
    calls.check("mail.second", Stay("it has the rate_limit 3/s"))
    calls.check("mail.third", Stay("it has the rate_limit 4/s"))
    may_answer.set()
    eventually(lambda: calls._thread is None, "the checks end")
    first, second = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert "mail.first (it has the rate_limit 2/s)" in first
    assert "to route it without this setting, pass migrate(…, carries_over={'mail.first'})" in first
    assert "mail.second (it has the rate_limit 3/s); mail.third (it has the rate_limit 4/s)" in second
    assert "to route them without these settings" in second
    assert "carries_over={'mail.second', 'mail.third'})" in second


def test_no_error_is_logged_if_a_worker_of_celery_answers(caplog: pytest.LogCaptureFixture) -> None:
    calls = UnansweredCalls(celery_that(lambda timeout: [{"celery@host": {"ok": "pong"}}]))
    calls.check("mail.first", Stay("it has the rate_limit 2/s"))
    eventually(lambda: calls._thread is None, "the check ends")
    assert caplog.records == []


def test_a_call_does_not_fail_if_the_host_has_no_resources_for_the_thread_of_the_check() -> None:
    calls = UnansweredCalls(celery_that(lambda timeout: []))
    with no_more_threads():
        calls.check("mail.first", Stay("it has the rate_limit 2/s"))


def test_an_unreachable_broker_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def ping(timeout: float) -> list[Any]:
        raise ConnectionError("refused")

    calls = UnansweredCalls(celery_that(ping))
    calls.check("mail.first", Stay("it has the rate_limit 2/s"))
    eventually(lambda: calls._thread is None, "the check ends")
    assert "cannot ask whether a worker of Celery runs: refused" in caplog.text
    assert "no worker of Celery answers" in caplog.text


@pytest.mark.parametrize(
    ("options", "retries", "runs"),
    [
        ({}, 0, 4),
        ({"max_retries": 0}, 0, 1),
        ({"max_retries": 3}, 2, 2),
        ({"max_retries": 3}, 9, 1),
        ({"max_retries": None}, 0, 999),
        ({"retry_kwargs": {"max_retries": 7}}, 0, 8),
        ({"max_retries": 5_000}, 0, 999),
        ({"retry_kwargs": {"max_retries": None}}, 0, 999),
        ({"retry_kwargs": {"countdown": 1}}, 0, 4),
    ],
)
def test_a_call_runs_once_and_again_for_each_retry_that_its_task_allows(
    options: dict[str, Any], retries: int, runs: int
) -> None:
    task = task_with(**options)
    assert runs_allowed(task, retries) == runs
    # The last attempt does not run the task.
    assert max_attempts(task, retries) == runs + 1


@pytest.mark.parametrize("value", ["mail.send", 3, [""], [3]])
def test_other_values_than_task_names_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="carries_over"):
        migrate(Celery("app", set_as_current=False), TaskApp(), carries_over=value)


def test_a_worker_warns_of_unknown_tasks_in_carries_over(caplog: pytest.LogCaptureFixture) -> None:
    task = task_with()
    check_tasks(task.app, TaskApp(), {}, {"some.task", "no.such.task"}, is_restart=False)
    assert "carries_over names tasks that the Celery app does not have: no.such.task\n" in caplog.text
