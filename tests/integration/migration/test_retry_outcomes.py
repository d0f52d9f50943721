"""A moved call that asks for another run gets it, or ends: no call stays in the state RETRY."""

import pytest
from celery.exceptions import WorkerLostError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually
from tickwheel.celery.failure_record import is_cancelled
from tickwheel.client import Message

pytestmark = [
    pytest.mark.integration,
    # Celery's result backend calls a method of redis-py that is deprecated.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _all_moved(moved_deployment: Shop) -> None:
    for task in shop.celery.tasks:
        if task.startswith("shop."):
            route(task, "tickwheel")


@pytest.mark.parametrize("end", ["ignore", "reject", "error"])
def test_a_retry_is_kept_however_the_run_that_requested_it_ends(moved_deployment: Shop, end: str) -> None:
    sent = shop.retried_quietly.delay(end)
    eventually(lambda: len(moved_deployment.ran(sent.id)[sent.id]) == 2, "the retry runs", 40)
    assert moved_deployment.ends(sent.id).state == "completed"


def test_a_retry_that_the_message_does_not_allow_is_a_failure(moved_deployment: Shop) -> None:
    model = shop.patient.apply_async((), countdown=3_600)
    queue = moved_deployment.tickwheel.queue("celery")
    # As sent by a program that does not know the task: the queue allows 5 attempts, so 4 runs, and the task asks for 6.
    queue.enqueue(queue.get(model.id).payload, id="unknown-limit")
    sent = shop.patient.AsyncResult("unknown-limit")
    with pytest.raises(KeyError, match="not yet"):
        sent.get(timeout=60)
    ended = moved_deployment.ends(sent.id)
    assert (sent.state, ended.state, ended.attempt) == ("FAILURE", "errored", 4)
    assert moved_deployment.signals_of(sent.id) == ["task_failure KeyError"]


def test_an_exception_that_would_end_a_worker_of_celery_is_a_failure(moved_deployment: Shop) -> None:
    sent = shop.cancels_itself.delay()
    with pytest.raises(WorkerLostError, match="CancelledError"):
        sent.get(timeout=60)
    assert moved_deployment.ends(sent.id).state == "errored"
    assert moved_deployment.ran(sent.id) == {sent.id: ["tickwheel"]}
    assert moved_deployment.signals_of(sent.id) == ["task_failure WorkerLostError"]


def test_the_result_of_an_earlier_call_with_the_same_id_is_not_the_result_of_a_run(moved_deployment: Shop) -> None:
    shop.celery.backend.store_result("every-day", "yesterday", "SUCCESS")
    key = shop.celery.backend.get_key_for_task("every-day")
    stored = shop.celery.backend.get(key).decode()
    today = shop.celery.backend.get_task_meta("every-day")["date_done"]
    shop.celery.backend.set(key, stored.replace(today[:4], "2020", 1))
    shop.killed.apply_async(kwargs={"times": 1}, task_id="every-day")
    eventually(lambda: len(moved_deployment.ran("every-day")["every-day"]) == 2, "the call runs again", 40)


def test_a_message_that_is_gone_counts_as_cancelled_if_its_lease_was_lost(moved_deployment: Shop) -> None:
    moved_deployment.ends(shop.note.delay("exists").id)
    gone = Message.by_lease("celery", 1, "gone", None, b"\0" * 16, 1)
    assert is_cancelled(shop.tickwheel, gone, is_lost=True)
    assert not is_cancelled(shop.tickwheel, gone)
