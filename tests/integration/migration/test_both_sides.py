"""During a migration the workers of Celery and of Tickwheel run a task: no call is lost, and none runs twice."""

from datetime import timedelta
from functools import partial

import pytest
from celery.exceptions import WorkerLostError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually

pytestmark = pytest.mark.integration


def test_producers_follow_a_route_while_they_run_and_every_call_runs_once_on_one_side(deployment: Shop) -> None:
    ids: list[str] = []
    deployment.tickwheel.create_queue("celery")

    def sides_of_some() -> set[str]:
        before = deployment.broker.llen("celery"), deployment.tickwheel.queue("celery").counts()["pending"]
        ids.extend(shop.note.delay(str(len(ids))).id for _ in range(10))
        after = deployment.broker.llen("celery"), deployment.tickwheel.queue("celery").counts()["pending"]
        return {side for side, was, is_ in zip(("celery", "tickwheel"), before, after, strict=True) if is_ > was}

    def goes_to(wanted: set[str]) -> bool:
        return sides_of_some() == wanted

    both = {"celery", "tickwheel"}
    for to, share, wanted in (("celery", 1.0, {"celery"}), ("tickwheel", 1.0, {"tickwheel"}), ("celery", 0.5, both)):
        shop.tickwheel.route("shop.note", to=to, share=share)
        eventually(partial(goes_to, wanted), f"calls go to {wanted}", 20, 0.1)
    with deployment.celery_worker(), deployment.tickwheel_worker():
        deployment.wait_until_run(ids)
        ran = deployment.ran(*ids)
    assert all(len(sides) == 1 for sides in ran.values())
    assert {sides[0] for sides in ran.values()} == both


def test_a_retry_at_celery_follows_the_route_and_keeps_its_count(deployment: Shop) -> None:
    sent = shop.retried.delay(3)
    with deployment.event_process(), deployment.celery_worker(), deployment.tickwheel_worker():
        eventually(lambda: deployment.ran(sent.id)[sent.id], f"Celery runs the call: {deployment.log}", 40)
        route("shop.retried", "tickwheel")
        later = [shop.retried.apply_async((2,), countdown=0.01).id for _ in range(5)]
        deployment.wait_until_run([sent.id, *later])
        assert sent.get(timeout=40) == "after 3"
        assert [shop.retried.AsyncResult(id_).get(timeout=40) for id_ in later] == ["after 2"] * 5
    assert [line[3] for line in deployment.record if line[2] == sent.id] == ["0", "1", "2", "3"]
    assert {line[0] for line in deployment.record if line[2] in later} == {"tickwheel"}


def test_a_call_whose_workers_reported_nothing_fails_without_another_run(deployment: Shop) -> None:
    route("shop.killed", "tickwheel")
    sent = shop.killed.delay()
    queue = deployment.tickwheel.queue("celery")
    # Two workers take the call, which may run twice, and are gone. The queue's driver would end their leases later.
    for _ in range(2):
        [message] = queue.dequeue()
        message.fail(retry_in=timedelta(0))
    with deployment.event_process(), deployment.tickwheel_worker(), pytest.raises(WorkerLostError, match="its lease"):
        sent.get(timeout=60)
    assert deployment.ends(sent.id).state == "errored"
    assert deployment.ran(sent.id) == {sent.id: []}
    assert deployment.signals_of(sent.id) == ["task_failure WorkerLostError"]


def test_a_worker_takes_the_calls_of_a_queue_that_only_its_command_line_and_a_call_name(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    sent = shop.note.apply_async(("x",), queue="named_by_a_call")
    with deployment.event_process(), deployment.tickwheel_worker("--queue", "celery", "--queue", "named_by_a_call"):
        assert deployment.ends(sent.id, "named_by_a_call").state == "completed"
    assert deployment.ran(sent.id) == {sent.id: ["tickwheel"]}
