"""A Celery task behaves the same in a worker of Tickwheel: binding, retries, expiry, and the place of its result."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually
from tickwheel.celery import task_adapter

pytestmark = pytest.mark.integration

OTHER_CALL = {"task": "other.task", "args": [], "kwargs": {}, "options": {"queue": "urgent"}}
ONLY_CELERY: dict[str, Any] = {
    "callbacks": [OTHER_CALL],
    "errbacks": [OTHER_CALL],
    "chain": [OTHER_CALL],
    "chord": OTHER_CALL,
    "group": "a-group",
}


@pytest.fixture(autouse=True)
def _all_moved(moved_deployment: Shop) -> None:
    for task in shop.celery.tasks:
        if task.startswith("shop."):
            route(task, "tickwheel")


def test_a_moved_task_has_its_request_and_an_initialized_process(moved_deployment: Shop) -> None:
    sent = shop.about.apply_async(headers={"trace": "abc"}, shadow="as.shown", queue="urgent")
    about: dict[str, Any] = sent.get(timeout=40)
    assert about == {
        "prepared": ["process"], "root": sent.id, "parent": None, "trace": "abc", "shadow": "as.shown",
        "queue": "urgent", "direct": False,
    }  # fmt: skip
    assert moved_deployment.ends(sent.id, "urgent").state == "completed"
    assert not moved_deployment.broker.exists("celery", "urgent")


def test_calls_of_a_moved_task_have_the_task_as_their_parent(moved_deployment: Shop) -> None:
    sent = shop.ask.delay()
    child = shop.about.AsyncResult(sent.get(timeout=40)).get(timeout=40)
    assert (child["root"], child["parent"]) == (sent.id, sent.id)


def test_arguments_arrive_as_celery_would_deliver_them(moved_deployment: Shop) -> None:
    values = (*shop.VALUES, "ä", [1, {"a": None}])
    assert shop.kinds.delay(*values[:3], **dict(zip("abcdefgh", values[3:], strict=False))).get(timeout=40) == [
        f"{type(value).__name__} {value!r}" for value in values
    ]


def test_the_router_of_celery_chooses_the_queue(moved_deployment: Shop) -> None:
    assert moved_deployment.ends(shop.urgent.delay().id, "urgent").state == "completed"


@pytest.mark.parametrize("throw", [True, False], ids=["raised", "not raised"])
def test_a_retry_is_a_failure_with_its_countdown(moved_deployment: Shop, throw: bool) -> None:
    sent = shop.retried.delay(2, throw=throw)
    assert moved_deployment.ends(sent.id).attempt == 3
    assert [line[3] for line in moved_deployment.record if line[2] == sent.id] == ["0", "1", "2"]
    assert sent.get(timeout=40) == "after 2" or not throw


def test_automatic_retries_end_after_the_last_retry(moved_deployment: Shop) -> None:
    sent = shop.unsteady.delay()
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.error, ended.attempt) == ("errored", "ConnectionError: no line", 3)
    with pytest.raises(ConnectionError, match="no line"):
        sent.get(timeout=40)


def test_an_error_is_final_and_stored_as_the_result(moved_deployment: Shop) -> None:
    sent = shop.boom.delay()
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.error, ended.attempt) == ("errored", "ValueError: no such user", 1)
    with pytest.raises(ValueError, match="no such user"):
        sent.get(timeout=40)


def test_reject_and_ignore_end_a_call(moved_deployment: Shop) -> None:
    rejected, ignored = moved_deployment.ends(shop.rejected.delay().id), moved_deployment.ends(shop.ignored.delay().id)
    assert (rejected.state, rejected.error) == ("errored", "rejected: not here")
    assert ignored.state == "completed"


def test_a_call_rejected_with_requeue_is_queued_again(moved_deployment: Shop) -> None:
    sent = shop.requeued.delay()
    assert (moved_deployment.ends(sent.id).attempt, sent.get(timeout=40)) == (2, "done")


def test_a_retry_with_other_arguments_is_refused(moved_deployment: Shop) -> None:
    ended = moved_deployment.ends(shop.changed.delay(1).id)
    assert ended.state == "errored"
    assert "was retried with other arguments" in ended.error


def test_a_task_over_its_time_limit_is_stopped_for_good(moved_deployment: Shop) -> None:
    sent = shop.slow.delay()
    ended = moved_deployment.ends(sent.id)
    assert (ended.state, ended.attempt) == ("errored", 1)
    assert "TimeLimitExceeded" in ended.error
    assert sent.state == "FAILURE"


def test_an_expired_call_is_revoked_and_not_run(moved_deployment: Shop) -> None:
    expired = shop.note.apply_async(("expired",), expires=datetime.now(UTC) - timedelta(seconds=1))
    valid = shop.note.apply_async(("kept",), expires=3_600)
    assert valid.get(timeout=40) == "noted kept"
    assert moved_deployment.ends(expired.id).state == "completed"
    assert expired.state == "REVOKED"
    assert moved_deployment.ran(expired.id, valid.id) == {expired.id: [], valid.id: ["tickwheel"]}
    [line] = [line for line in moved_deployment.log.splitlines() if expired.id in line and "received" not in line]
    assert "not run, because it expired at 20" in line


@pytest.mark.parametrize("where", ["body", "headers"])
@pytest.mark.parametrize("name", ONLY_CELERY)
def test_a_payload_cannot_make_the_worker_send_other_calls(moved_deployment: Shop, name: str, where: str) -> None:
    following = {name: ONLY_CELERY[name]}
    id_ = enqueue_payload(
        "shop.boom" if name == "errbacks" else "shop.note",
        headers=following if where == "headers" else {},
        embedded=following if where == "body" else {},
    )
    ended = moved_deployment.ends(id_)
    assert (ended.state, ended.attempt) == ("errored", 1)
    assert name in ended.error
    assert "which only Celery can run" in ended.error
    assert moved_deployment.ran(id_) == {id_: []}
    assert not moved_deployment.broker.exists("celery", "urgent")


def test_items_of_the_body_do_not_change_the_request(moved_deployment: Shop) -> None:
    id_ = enqueue_payload("shop.about", headers={}, embedded={"trace": "of-the-body"})
    assert moved_deployment.ends(id_).state == "completed"
    assert shop.about.AsyncResult(id_).get(timeout=40)["trace"] is None


def test_a_line_of_a_moved_task_begins_with_the_task_and_its_id(moved_deployment: Shop) -> None:
    sent = shop.prioritized.delay()
    moved_deployment.ends(sent.id)
    text = f"{shop.__name__}: shop.prioritized[{sent.id}]: the priority is of the request"
    eventually(lambda: text in moved_deployment.log, f"the task has logged\n{moved_deployment.log[-2_000:]}")
    assert f"celery.app.trace: Task shop.prioritized[{sent.id}] succeeded" in moved_deployment.log


def test_the_log_has_one_traceback_of_a_failure_in_the_line_of_celery(moved_deployment: Shop) -> None:
    already = moved_deployment.log.count('raise ValueError("no such user")')
    sent = shop.boom.delay()
    moved_deployment.ends(sent.id)

    def levels() -> dict[str, str]:
        lines = [line.split(maxsplit=4) for line in moved_deployment.log.splitlines() if sent.id in line]
        return {logger: level for _, _, level, logger, text in lines if "no such user" in text}

    expected = {"celery.app.trace:": "ERROR", "tickwheel.worker:": "ERROR"}
    eventually(lambda: levels() == expected, f"both log the failure\n{moved_deployment.log[-2_000:]}")
    assert moved_deployment.log.count('raise ValueError("no such user")') == already + 1


def test_the_traceback_of_an_error_that_celery_does_not_log_is_logged(moved_deployment: Shop) -> None:
    id_ = enqueue_payload("shop.about", headers={}, embedded={}, body="no JSON")
    assert "DecodeError" in moved_deployment.ends(id_).error
    text = f"ERROR tickwheel.worker: celery/{id_} shop.about: errored"
    eventually(lambda: text in moved_deployment.log, f"the worker logs the failure\n{moved_deployment.log[-2_000:]}")
    assert "args, kwargs, embedded = loads(body)" in moved_deployment.log


def enqueue_payload(task: str, headers: dict[str, Any], embedded: dict[str, Any], body: str = "") -> str:
    """Enqueue a payload as a program without Celery could, and return the id of the message."""
    id_ = uuid.uuid4().hex
    body = body or json.dumps([[], {}, embedded])
    payload = {"task": task, "args": {"headers": headers, "body": body}}
    task_adapter.declare_queue(shop.tickwheel, "celery")
    shop.tickwheel.declared("celery").enqueue(json.dumps(payload).encode(), id=id_)
    return id_
