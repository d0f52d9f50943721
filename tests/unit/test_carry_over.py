"""Which tasks of a Celery app stay with Celery, how often a call may run, and the arguments that `migrate` refuses."""

from typing import Any

import pytest
from celery import Celery

from tickwheel import InvalidArgument
from tickwheel.celery import migrate
from tickwheel.celery.carry_over import why_task_stays
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
}


@pytest.mark.parametrize("setting", STAYING)
def test_a_task_with_a_setting_that_tickwheel_ignores_stays_unless_it_is_named(setting: str) -> None:
    options, reason = STAYING[setting]
    task = task_with(**options)
    assert reason in str(why_task_stays(task))
    assert why_task_stays(task, {"some.task"}) is None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"acks_late": True, "time_limit": 3, "soft_time_limit": 2, "expires": 60},
        {"reject_on_worker_lost": True, "ignore_result": True, "track_started": True, "max_retries": None},
        {"acks_late": True, "acks_on_timeout": False},
    ],
)
def test_a_task_with_other_settings_moves(options: dict[str, Any]) -> None:
    assert why_task_stays(task_with(**options)) is None


def test_the_rate_limit_of_all_tasks_of_an_app_counts() -> None:
    celery: Any = Celery("app", set_as_current=False)
    celery.conf.task_default_rate_limit = "5/m"
    assert why_task_stays(celery.task(name="some.task")(nothing)) == "it has the rate_limit 5/m"


@pytest.mark.parametrize(
    ("options", "retries", "runs"),
    [
        ({}, 0, 4),
        ({"max_retries": 0}, 0, 1),
        ({"max_retries": 3}, 2, 2),
        ({"max_retries": 3}, 9, 1),
        ({"max_retries": None}, 0, 1_000),
        ({"retry_kwargs": {"max_retries": 7}}, 0, 8),
        ({"retry_kwargs": {"max_retries": None}}, 0, 1_000),
        ({"retry_kwargs": {"countdown": 1}}, 0, 4),
    ],
)
def test_a_call_runs_once_and_again_for_each_retry_that_its_task_allows(
    options: dict[str, Any], retries: int, runs: int
) -> None:
    task = task_with(**options)
    assert runs_allowed(task, retries) == runs
    assert max_attempts(task, retries) == min(1_000, runs + 1)


@pytest.mark.parametrize("value", ["mail.send", 3, [""], [3]])
def test_other_values_than_task_names_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="carries_over"):
        migrate(Celery("app", set_as_current=False), TaskApp(), carries_over=value)
