"""A moved call whose process dies, or whose task exceeds a limit, ends as in Celery: result, signals and handlers."""

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _all_moved(moved_deployment: Shop) -> None:
    for task in shop.celery.tasks:
        if task.startswith("shop."):
            route(task, "tickwheel")


def test_a_call_whose_process_dies_in_every_run_fails_once_with_worker_lost(moved_deployment: Shop) -> None:
    sent = shop.killed.delay()
    with pytest.raises(WorkerLostError, match="its worker process was ended by SIGKILL"):
        sent.get(timeout=60)
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.error.partition(":")[0]) == ("errored", "WorkerLostError")
    assert [line[3] for line in moved_deployment.record if line[2] == sent.id] == ["0", "1"]
    # Celery does not call the handler `on_failure` for a process that died.
    assert moved_deployment.signals_of(sent.id) == ["task_failure WorkerLostError"]


def test_a_call_whose_process_dies_once_runs_again_and_does_not_fail(moved_deployment: Shop) -> None:
    sent = shop.killed.delay(times=1)
    assert sent.get(timeout=60) == "done"
    assert moved_deployment.ends(sent.id).attempt == 2
    assert moved_deployment.signals_of(sent.id) == []


def test_a_call_whose_process_dies_after_its_success_is_completed_without_another_run(moved_deployment: Shop) -> None:
    sent = shop.killed_afterwards.delay()
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.attempt, sent.get(timeout=60)) == ("completed", 2, "done")
    assert moved_deployment.ran(sent.id) == {sent.id: ["tickwheel"]}
    assert moved_deployment.signals_of(sent.id) == []


@pytest.mark.parametrize("task", ["over", "stuck"], ids=["stopped", "killed"])
def test_a_task_over_its_time_limit_fails_once_and_calls_its_handler(moved_deployment: Shop, task: str) -> None:
    sent = getattr(shop, task).delay()
    with pytest.raises(TimeLimitExceeded, match=r"0\.3"):
        sent.get(timeout=60)
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.error.partition(":")[0]) == ("errored", "TimeLimitExceeded")
    assert moved_deployment.ran(sent.id) == {sent.id: ["tickwheel"]}
    assert moved_deployment.signals_of(sent.id) == ["on_failure TimeLimitExceeded", "task_failure TimeLimitExceeded"]


def test_a_task_that_exits_fails_with_worker_lost(moved_deployment: Shop) -> None:
    sent = shop.exits.delay()
    with pytest.raises(WorkerLostError, match="SystemExit"):
        sent.get(timeout=60)
    assert moved_deployment.ends(sent.id).attempt == 1
    assert moved_deployment.signals_of(sent.id) == ["task_failure WorkerLostError"]


def test_a_soft_time_limit_is_an_error_that_the_task_can_catch(moved_deployment: Shop) -> None:
    caught, raised = shop.soft.delay(catches=True), shop.soft.delay(catches=False)
    assert caught.get(timeout=60) == "cleaned up"
    with pytest.raises(SoftTimeLimitExceeded):
        raised.get(timeout=60)
    expected = ["task_failure SoftTimeLimitExceeded"]
    eventually(lambda: moved_deployment.signals_of(raised.id) == expected, "the signal is sent")


def test_more_retries_than_the_task_allows_end_in_a_failure(moved_deployment: Shop) -> None:
    sent = shop.insistent.delay()
    with pytest.raises(Exception, match="its own max_retries allows no more"):
        sent.get(timeout=60)
    assert (sent.state, moved_deployment.ends(sent.id).attempt) == ("FAILURE", 2)
    assert moved_deployment.signals_of(sent.id) == ["task_failure MaxRetriesExceededError"]


def test_the_arguments_of_automatic_retries_can_allow_more_retries_than_the_task(moved_deployment: Shop) -> None:
    sent = shop.patient.delay()
    assert (sent.get(timeout=60), moved_deployment.ends(sent.id).attempt) == ("patient", 6)
