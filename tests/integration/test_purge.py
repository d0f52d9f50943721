"""Purge: messages of some states are removed, each by events, whatever their retention is."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tickwheel import InvalidArgument, LeaseLost, Message, MessageNotFound, NewMessage, OutboxFull, Queue, Tickwheel
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

Bring = Callable[..., Message | None]
History = Callable[[str], list[OutboxTransition]]
ALL_STATES = [state.label for state in State]
ENDED = ["completed", "cancelled", "errored"]


def _changes(transitions: list[OutboxTransition]) -> list[tuple[str | None, str | None]]:
    return [
        (
            None if item.from_state is None else item.from_state.label,
            None if item.to_state is None else item.to_state.label,
        )
        for item in transitions
    ]


def _in_every_state(queue: Queue, bring: Bring) -> Message:
    for state in [*ENDED, "invisible"]:
        bring(state, queue, state, **({"metadata": {"of": state}} if queue.config().exclusive_key else {}))
    running = bring("running", queue, "running", metadata={"of": "a"})
    assert running is not None
    queue.enqueue(id="pending", metadata={"of": "a"})
    return running


def test_a_purge_removes_all_messages_except_those_that_run(queue: Queue, bring: Bring, history: History) -> None:
    running = _in_every_state(queue, bring)
    assert queue.purge() == 5
    assert queue.counts() == dict.fromkeys(ALL_STATES, 0) | {"running": 1}
    for state in ENDED:
        assert _changes(history(state))[-1] == (state, None)
    for state in ("invisible", "pending"):
        assert _changes(history(state)) == [(None, state), (state, "cancelled"), ("cancelled", None)]
        assert [item.version for item in history(state)] == [1, 2, 3]
    running.complete()
    assert queue.purge() == 1


@pytest.mark.parametrize("state", [state for state in ALL_STATES if state != "running"])
def test_a_purge_removes_only_the_given_states(queue: Queue, bring: Bring, state: str) -> None:
    _in_every_state(queue, bring)
    assert queue.purge([state]) == 1
    assert queue.counts() == dict.fromkeys(ALL_STATES, 1) | {state: 0}
    with pytest.raises(MessageNotFound):
        queue.get(state)


@pytest.mark.queue(exclusive_key="of", forecast=True)
def test_a_purge_of_an_exclusive_queue_leaves_held_values_held(queue: Queue, bring: Bring, tw: Tickwheel) -> None:
    running = _in_every_state(queue, bring)
    queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"of": "b", "kind": str(n % 3)}) for n in range(40))
    assert queue.purge() == 45
    assert sum(minute.due for minute in queue.forecast()) == 0
    queue.enqueue(id="next", metadata={"of": "a"})
    assert queue.dequeue() == []
    running.complete()
    assert [message.id for message in queue.dequeue()] == ["next"]


@pytest.mark.queue(exclusive_key="of")
def test_a_purge_leaves_a_cancelled_message_whose_worker_may_still_run_it(queue: Queue, bring: Bring) -> None:
    running = bring("running", queue, metadata={"of": "a"})
    assert running is not None
    queue.cancel("m", "a")
    assert queue.purge() == 0
    with pytest.raises(LeaseLost):
        running.complete()
    assert queue.purge() == 1


def test_a_purge_of_more_messages_than_one_call_may_remove(queue: Queue) -> None:
    pairs = {f"key{n}": "value" for n in range(16)}
    queue.enqueue_many(NewMessage(b"x" * 2_000, id=f"p{n}", metadata=pairs) for n in range(600))
    queue.enqueue_many(NewMessage(id=f"i{n}", delay=timedelta(hours=1)) for n in range(600))
    assert queue.purge(["pending"]) == 600
    assert queue.purge(["invisible", "pending"]) == 600
    assert not any(queue.counts().values())


def test_a_purge_reaches_a_message_behind_many_messages_that_it_leaves(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(id=f"p{n}") for n in range(3_000))
    queue.enqueue(id="invisible", delay=timedelta(hours=1))
    assert queue.purge(["invisible"]) == 1
    assert queue.counts()["pending"] == 3_000


def test_a_purge_leaves_other_queues_alone(queue: Queue, tw: Tickwheel) -> None:
    other = tw.create_queue("other")
    other.enqueue_many(NewMessage(id=f"m{n}") for n in range(10))
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(10))
    assert queue.purge() == 10
    assert other.counts()["pending"] == 10


@pytest.mark.parametrize("name", ["PurgeQueue", "DeleteQueue"])
def test_the_pages_of_a_removal_over_the_service_end(tickwheel_server: PrivateServer, name: str) -> None:
    """The page tokens alone continue the removal: each call makes a new `Purge`."""
    namespace = f"pages-{name.lower()}"
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tw:
        queue, other = tw.create_queue("removed"), tw.create_queue("other")
        for queue_of_many in (other, queue):
            queue_of_many.enqueue_many(NewMessage(id=f"m{n}") for n in range(1_500))
    with ServiceThread(tickwheel_server.url) as service, grpc.insecure_channel(service.target) as channel:
        client = GenericClient(channel)
        options = {"purge": True} if name == "DeleteQueue" else {}
        token, removed, calls = "", 0, 0
        while calls == 0 or (token and calls < 100):
            calls += 1
            page = client.call(name, namespace=namespace, queue="removed", page_token=token, **options)
            token, removed = page["next_page_token"], removed + int(page["removed"])
        assert (token, removed) == ("", 1_500)
        assert client.call("GetCounts", namespace=namespace, queue="other")["counts"]["pending"] == "1500"


def test_a_purged_id_can_be_used_again_and_old_timers_do_no_harm(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=1))
    queue.purge()
    queue.enqueue(id="m", delay=timedelta(hours=2))
    clock.advance(timedelta(hours=1))
    assert queue.get("m").state == "invisible"
    clock.advance(timedelta(hours=1))
    assert queue.get("m").state == "pending"
    first, second = history("m")[0].incarnation, history("m")[-1].incarnation
    assert [item.incarnation for item in history("m")] == [first] * 3 + [second] * 2


@pytest.mark.parametrize(
    ("states", "text"), [(["running"], "must not contain 'running'"), (["x"], "a state of states"), ([], "empty")]
)
def test_wrong_states_are_refused_before_anything_is_removed(queue: Queue, states: list[str], text: str) -> None:
    queue.enqueue(id="m")
    with pytest.raises(InvalidArgument, match=text):
        queue.purge(states)
    assert queue.counts()["pending"] == 1


def test_a_full_outbox_stops_a_purge_which_can_be_repeated(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay", outbox_limit=2_048) as tw:
        queue = tw.queue("q")
        with pytest.raises(OutboxFull):
            queue.enqueue_many(NewMessage() for _ in range(10_000))
        left = queue.counts()["pending"]
        with pytest.raises(OutboxFull):
            queue.purge()
        assert queue.counts()["pending"] == left
        # The relay publishes and trims the events.
        server.delete(f"{namespace}:{{0}}:events")
        server.hset(f"{namespace}:{{0}}:clock", "outbox", 0)
        assert queue.purge() == left
