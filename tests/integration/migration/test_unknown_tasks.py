"""A program that does not have the tasks calls them by `send_task`: such a call follows the route, and ends."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import NotRegistered, WorkerLostError

from tests.integration.migration import shop
from tests.integration.migration.conftest import BROKER, Shop, route
from tickwheel import limits
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.integration


@pytest.fixture
def client(deployment: Shop) -> Iterator[Any]:
    """The Celery app of a program that has no task, and stores and reads no results."""
    with (
        Celery("client", broker=deployment.celery_url(BROKER), set_as_current=False) as celery,
        TaskApp(deployment.url, namespace=deployment.namespace) as app,
    ):
        migrate(celery, app)
        yield celery


def create_queue_of_three_attempts(deployment: Shop) -> None:
    options: Any = {"backoff": timedelta(milliseconds=50), "payload_limit": limits.PAYLOAD_BYTES_MAX}
    deployment.tickwheel.create_queue("celery", max_attempts=3, **options)


def test_a_call_that_is_sent_without_the_task_follows_the_route(deployment: Shop, client: Any) -> None:
    client.send_task("shop.note", ("before",))
    assert deployment.broker.llen("celery") == 1
    route("shop.urgent", "tickwheel")
    sent = client.send_task("shop.urgent")
    assert deployment.tickwheel.queue("celery").get(sent.id).state == "pending"
    assert deployment.broker.llen("celery") == 1


def test_a_call_that_is_sent_without_the_task_fails_if_its_process_dies_in_every_run(
    deployment: Shop, client: Any
) -> None:
    route("shop.killed_often", "tickwheel")
    # Two runs, and an attempt that records the failure. The task allows more.
    create_queue_of_three_attempts(deployment)
    sent = shop.killed_often.AsyncResult(client.send_task("shop.killed_often").id)
    with deployment.event_process(), deployment.tickwheel_worker():
        with pytest.raises(WorkerLostError, match="its worker process was ended by SIGKILL"):
            sent.get(timeout=60)
        ended = deployment.ends(sent.id)
    assert (sent.state, ended.state, ended.attempt) == ("FAILURE", "errored", 3)
    assert deployment.ran(sent.id) == {sent.id: ["tickwheel"] * 2}
    assert deployment.signals_of(sent.id) == ["task_failure WorkerLostError"]


def test_a_call_of_a_task_that_no_worker_has_ends(deployment: Shop, client: Any) -> None:
    route("shop.of_tomorrow", "tickwheel")
    create_queue_of_three_attempts(deployment)
    sent = shop.note.AsyncResult(client.send_task("shop.of_tomorrow").id)
    with deployment.event_process(), deployment.tickwheel_worker():
        with pytest.raises(NotRegistered, match=r"shop\.of_tomorrow"):
            sent.get(timeout=60)
        ended = deployment.ends(sent.id)
    assert (sent.state, ended.state, ended.attempt) == ("FAILURE", "errored", 3)
