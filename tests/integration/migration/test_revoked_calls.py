"""`revoke` cancels calls that went to Tickwheel, as it does in Celery: the state REVOKED, and the signal."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import signals
from celery.exceptions import TaskRevokedError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually

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


@pytest.fixture
def revoked() -> Iterator[list[tuple[str, bool]]]:
    """The ids of the calls for which this process has sent the signal, and whether they were terminated."""
    received: list[tuple[str, bool]] = []

    def receive(request: Any, terminated: bool, **_: Any) -> None:
        received.append((request.id, terminated))

    signals.task_revoked.connect(receive)
    yield received
    signals.task_revoked.disconnect(receive)


def test_a_revoked_call_does_not_run_and_its_state_is_revoked(
    moved_deployment: Shop, revoked: list[tuple[str, bool]]
) -> None:
    sent = shop.note.apply_async(("x",), countdown=3_600)
    for _ in range(2):
        sent.revoke()
    assert moved_deployment.tickwheel.queue("celery").get(sent.id).state == "cancelled"
    with pytest.raises(TaskRevokedError):
        sent.get(timeout=40)
    assert (sent.state, revoked) == ("REVOKED", [(sent.id, False)])
    assert moved_deployment.ran(sent.id) == {sent.id: []}


def test_a_list_of_calls_is_revoked_in_any_queue(moved_deployment: Shop, revoked: list[tuple[str, bool]]) -> None:
    queues = ("celery", "urgent", "elsewhere")
    sent = [shop.note.apply_async((), countdown=3_600, queue=queue) for queue in queues]
    shop.celery.control.revoke([*(result.id for result in sent), str(uuid.uuid4())])
    assert [result.state for result in sent] == ["REVOKED"] * 3
    assert revoked == [(result.id, False) for result in sent]


@pytest.mark.parametrize(("command", "more"), [("revoke", {}), ("terminate", {"signal": "KILL"})])
def test_the_commands_of_celery_for_the_shell_revoke_calls(
    moved_deployment: Shop, revoked: list[tuple[str, bool]], command: str, more: dict[str, str]
) -> None:
    sent = [shop.note.apply_async((), countdown=3_600) for _ in range(2)]
    # As `celery control revoke ID ID` and `celery control terminate KILL ID ID` call it, on a connection of its own.
    ids = [result.id for result in sent]
    with shop.celery.connection_for_write() as connection:
        shop.celery.control.broadcast(
            command, arguments={"task_id": ids, **more}, connection=connection, timeout=0.1, reply=True
        )
    assert [result.state for result in sent] == ["REVOKED"] * 2
    # No call was running, so none was terminated.
    assert revoked == [(id_, False) for id_ in ids]


def test_a_message_that_is_no_call_of_celery_is_not_revoked(moved_deployment: Shop) -> None:
    moved_deployment.tickwheel.create_queue("orders")
    moved_deployment.tickwheel.queue("orders").enqueue(b"17", id="order-17")
    shop.celery.control.revoke("order-17")
    assert moved_deployment.tickwheel.queue("orders").get("order-17").state == "pending"


def test_a_finished_call_keeps_its_result(moved_deployment: Shop, revoked: list[tuple[str, bool]]) -> None:
    sent = shop.note.delay("done")
    moved_deployment.ends(sent.id)
    sent.revoke(terminate=True)
    assert (sent.get(timeout=40), revoked) == ("noted done", [])


def test_a_running_call_is_stopped_only_if_it_is_terminated(
    moved_deployment: Shop, tmp_path: Path, revoked: list[tuple[str, bool]]
) -> None:
    sent = shop.sleeps.delay(str(tmp_path / "never"))
    eventually(lambda: moved_deployment.ran(sent.id)[sent.id], "the call runs", 40)
    sent.revoke(terminate=True)
    assert (sent.state, revoked) == ("REVOKED", [(sent.id, True)])
    # The worker runs one task at a time, so this call runs only when the other one has stopped.
    assert shop.note.delay("next").get(timeout=60) == "noted next"
    assert moved_deployment.tickwheel.queue("celery").get(sent.id).state == "cancelled"
    assert (sent.state, moved_deployment.signals_of(sent.id)) == ("REVOKED", [])


@pytest.mark.parametrize("again", [None, "retries", "requeues"])
def test_a_running_call_that_is_not_terminated_ends_and_is_not_retried(
    moved_deployment: Shop, tmp_path: Path, revoked: list[tuple[str, bool]], again: str | None
) -> None:
    awake = tmp_path / "awake"
    sent = shop.sleeps.delay(str(awake), **{again: True} if again else {})
    eventually(lambda: moved_deployment.ran(sent.id)[sent.id], "the call runs", 40)
    sent.revoke()
    awake.touch()
    assert shop.note.delay("next").get(timeout=60) == "noted next"
    assert moved_deployment.ran(sent.id) == {sent.id: ["tickwheel"]}
    assert (sent.state, revoked) == ("REVOKED" if again else "SUCCESS", [])
    in_worker = ["task_revoked:terminated=False,expired=False NoneType"] if again else []
    assert moved_deployment.signals_of(sent.id) == in_worker


@pytest.mark.parametrize("terminates", [False, True], ids=["ended", "terminated"])
def test_a_call_that_waits_in_a_worker_is_revoked_there(
    moved_deployment: Shop, tmp_path: Path, revoked: list[tuple[str, bool]], terminates: bool
) -> None:
    batched = moved_deployment.tickwheel.queue("batched")
    moved_deployment.ends(shop.note.apply_async(("exists",), queue="batched").id, "batched")
    batched.block(enqueue=False)
    # A worker that was idle takes one message, and then more.
    shop.note.apply_async(("short",), queue="batched")
    first = shop.sleeps.apply_async((str(tmp_path / "awake"),), queue="batched")
    second = shop.note.apply_async(("second",), queue="batched")
    batched.unblock()
    eventually(lambda: moved_deployment.ran(first.id)[first.id], "the first call runs", 40)
    assert batched.get(second.id).state == "running"
    second.revoke()
    if terminates:
        # The renewal of the leases that ends the first call also marks the second message as lost.
        first.revoke(terminate=True)
    else:
        (tmp_path / "awake").touch()
    with pytest.raises(TaskRevokedError):
        second.get(timeout=40)
    assert moved_deployment.ran(second.id) == {second.id: []}
    # The worker stores the state first.
    signals = ["task_revoked:terminated=False,expired=False NoneType"]
    eventually(lambda: moved_deployment.signals_of(second.id) == signals, "the signal is sent")
    assert revoked == ([(first.id, True)] if terminates else [])
    assert first.state == ("REVOKED" if terminates else "SUCCESS")
