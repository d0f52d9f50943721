"""Deletion of a queue without ``purge``: messages that arrive during the deletion stay, and the queue works again."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.held_plan import HeldPlan
from tickwheel import Queue, QueueBlocked, QueueNotEmpty, Tickwheel, TickwheelError
from tickwheel.operations.removal.delete_queue import QueueDeletion

pytestmark = pytest.mark.integration


@pytest.fixture
def deleter(direct_client: Tickwheel) -> Iterator[Tickwheel]:
    """A client of its own, so that the other client keeps the configuration from before the deletion."""
    settings = direct_client._client_settings
    with Tickwheel(settings.url, namespace=direct_client._context.namespace, clock="_clock_test") as client:
        yield client


class Killed(Exception):
    """The program that deletes the queue ends here."""


def kill() -> None:
    raise Killed


def delete(client: Tickwheel, *calls: tuple[str, Callable[[], object]]) -> None:
    """Delete the queue "q" without ``purge``. Before the first call of the first script in ``calls``, call the function
    of this script, and then continue with the next script in the same manner.
    """
    left = list(calls)
    deletion = QueueDeletion(client._context, "q", False)
    try:
        while not deletion.ended:
            held = HeldPlan(client, deletion.next())
            while left and held.run_until_script(left[0][0]):
                left.pop(0)[1]()
            held.finish()
    finally:
        assert not left, "the deletion did not call all of these scripts"


@pytest.mark.parametrize("script", ["update_queue", "sync_queue_version"])
def test_a_message_that_arrives_before_the_shards_know_the_deletion_ends_the_deletion(
    queue: Queue, deleter: Tickwheel, script: str
) -> None:
    before = queue.config()
    with pytest.raises(QueueNotEmpty, match="1 pending; let workers finish them"):
        delete(deleter, (script, lambda: queue.enqueue(id="m")))
    after = queue.config()
    assert after.settings() == before.settings()
    assert not after.deleting
    assert queue.enqueue(id="n").created
    assert [message.id for message in queue.dequeue(2)] == ["m", "n"]


@pytest.mark.parametrize("dequeue_blocked", [False, True], ids=["open", "dequeue-blocked"])
@pytest.mark.parametrize("killed_before", ["sync_queue_version", "counts"])
def test_the_repetition_of_a_deletion_that_was_cut_off_frees_the_queue_if_a_message_is_left(
    queue: Queue, tw: Tickwheel, deleter: Tickwheel, killed_before: str, dequeue_blocked: bool
) -> None:
    if dequeue_blocked:
        queue.block(enqueue=False)
    before = queue.config()
    with pytest.raises(Killed):
        delete(deleter, ("update_queue", lambda: queue.enqueue(id="m")), (killed_before, kill))
    assert queue.config().deleting
    with pytest.raises(QueueBlocked, match="is being deleted"):
        queue.unblock()

    with pytest.raises(QueueNotEmpty, match="1 pending; let workers finish them"):
        tw.delete_queue("q")
    after = queue.config()
    assert after.settings() == before.settings()
    assert not after.deleting
    assert queue.enqueue(id="n").created
    queue.unblock()
    assert [message.id for message in queue.dequeue(2)] == ["m", "n"]


def test_the_repetition_of_a_deletion_checks_again_when_the_shards_know_the_deletion(
    queue: Queue, deleter: Tickwheel
) -> None:
    with pytest.raises(Killed):
        delete(deleter, ("sync_queue_version", kill))
    with pytest.raises(QueueNotEmpty, match="1 pending"):
        # The shards do not know the deletion yet, and the client has the configuration before the deletion.
        delete(deleter, ("sync_queue_version", lambda: queue.enqueue(id="m")))
    assert [message.id for message in queue.dequeue()] == ["m"]


def test_without_purge_a_deletion_ends_a_deletion_with_purge_and_keeps_the_messages_that_are_left(
    queue: Queue, tw: Tickwheel, deleter: Tickwheel
) -> None:
    queue.enqueue(id="m")
    purging = QueueDeletion(deleter._context, "q", True)
    deleter._run(purging.next())
    with pytest.raises(QueueNotEmpty, match="1 pending"):
        tw.delete_queue("q")
    with pytest.raises(TickwheelError, match="not being deleted any more"):
        deleter._run(purging.next())
    assert [message.id for message in queue.dequeue()] == ["m"]


@pytest.mark.parametrize("call", ["enqueue", "dequeue"])
def test_the_name_is_free_after_the_deletion_for_clients_that_were_refused_during_it(
    queue: Queue, deleter: Tickwheel, call: str
) -> None:
    # The client has the configuration from before the deletion.
    assert queue.dequeue() == []

    def meet_deletion() -> None:
        for _ in range(2):
            with pytest.raises(QueueBlocked, match="is being deleted"):
                queue.enqueue(id="m") if call == "enqueue" else queue.dequeue()

    delete(deleter, ("sync_queue_version", lambda: None), ("counts", meet_deletion))
    if call == "dequeue":
        assert queue.dequeue() == []
    assert queue.enqueue(id="m").created
    assert [message.id for message in queue.dequeue()] == ["m"]
