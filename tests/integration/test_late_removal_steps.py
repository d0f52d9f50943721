"""A process stops in the middle of a step of a removal. The caller repeats the step elsewhere, the removal ends, and
the queue or namespace is used again. Then the first process continues: it changes nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.support.held_plan import HeldPlan, scripts_of
from tickwheel import (
    InvalidArgument,
    NamespaceInUse,
    NamespaceNotFound,
    NewMessage,
    QueueNotEmpty,
    SessionExpired,
    Tickwheel,
    TickwheelError,
)
from tickwheel.doctor import audit
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.operations.removal.purge import Purge
from tickwheel.operations.sessions import RequestId, RequestSessions
from tickwheel.plan import Plan
from tickwheel.storage.keys import namespace_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SHARDS, MESSAGES = 3, 12
Open = Callable[..., Tickwheel]
IDS = [f"m{n}" for n in range(MESSAGES)]


@pytest.fixture
def open_client(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Open]:
    """Opens clients with contexts of their own, like the processes of the service."""
    with ExitStack() as stack:

        def open_namespace(shards: int = SHARDS) -> Tickwheel:
            return stack.enter_context(Tickwheel(tickwheel_server.url, namespace=namespace, shards=shards))

        yield open_namespace


def fill(client: Tickwheel) -> None:
    client.queue("q").enqueue_many(NewMessage(id=id_) for id_ in IDS)


def ids(client: Tickwheel) -> list[str]:
    return sorted(message.id for message in client.queue("q").messages())


class Steps:
    """A removal, step by step as the service runs it. All request ids have one slot."""

    def __init__(self, client: Tickwheel, make: Callable[[NamespaceContext, str], Any]) -> None:
        self._client, self._make = client, make
        self.token, self.ended, self._taken = "", False, 0

    def prepare(self, client: Tickwheel) -> tuple[Any, Plan[int]]:
        """Return the next step as ``client`` would take it: the removal, and the plan of its step."""
        number = self._taken + 1
        removal = self._make(client._context, self.token)
        call = RequestId.parse(f"slot:{number}").call("q", "Removal", b"%d" % number)
        return removal, removal.next(RequestSessions(call))

    def take(self, steps: int = 1_000) -> int:
        """Take steps until the end of the removal. Return the number of removed messages of the last step."""
        removed = 0
        while not self.ended and steps:
            removal, plan = self.prepare(self._client)
            removed = self._client._run(plan)
            self.token, self.ended = removal.token, removal.ended
            self._taken, steps = self._taken + 1, steps - 1
        return removed


def make_purge(context: NamespaceContext, token: str) -> Purge:
    return Purge(context, "q", None, token)


def make_deletion(context: NamespaceContext, token: str) -> QueueDeletion:
    return QueueDeletion(context, "q", True, token)


@pytest.mark.parametrize("script", ["register_call", "purge"])
@pytest.mark.parametrize("step", range(1, SHARDS + 1))
def test_a_late_step_of_a_purge_removes_no_later_message(open_client: Open, step: int, script: str) -> None:
    late, other = open_client(), open_client()
    fill(other)
    steps = Steps(other, make_purge)
    steps.take(step - 1)
    held = HeldPlan(late, steps.prepare(late)[1])
    # A call that concerns only its registration shard is not registered.
    assert held.run_until(lambda plan_step: not {script, "purge"}.isdisjoint(scripts_of(plan_step)))
    steps.take()
    assert ids(other) == []
    fill(other)
    with suppress(SessionExpired):
        held.finish()
    assert ids(other) == sorted(IDS)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_late_step_of_a_purge_over_empty_shards_removes_no_later_message(open_client: Open, shard: int) -> None:
    late, other = open_client(), open_client()
    other.create_queue("q")
    steps = Steps(other, make_purge)
    steps.take(shard)
    held = HeldPlan(late, steps.prepare(late)[1])
    assert held.run_until_script("purge")
    steps.take(1)
    fill(other)
    assert held.finish() == 0
    assert ids(other) == sorted(IDS)


@pytest.mark.parametrize("step", range(1, SHARDS + 1))
def test_a_repeated_step_gets_its_answer_from_a_process_with_an_older_configuration(
    open_client: Open, step: int
) -> None:
    late, other = open_client(), open_client()
    fill(other)
    # The process stores the configuration before the deletion in its cache.
    assert late.queue("q").counts()["pending"] == MESSAGES
    late.queue("q").config()
    steps = Steps(other, make_deletion)
    steps.take(step - 1)
    again, plan = steps.prepare(late)
    removed = steps.take(1)
    assert late._run(plan) == removed
    assert again.token == steps.token


# The first step of a deletion calls these scripts.
FIRST_SCRIPTS = ["register_call", "update_queue", "sync_queue_version"]


@pytest.mark.parametrize("script", FIRST_SCRIPTS)
def test_a_late_first_step_of_a_deletion_does_not_mark_the_next_queue(open_client: Open, script: str) -> None:
    late, other = open_client(), open_client()
    fill(other)
    deletion, plan = Steps(late, make_deletion).prepare(late)
    held = HeldPlan(late, plan)
    assert held.run_until_script(script)
    other.delete_queue("q", purge=True)
    fill(other)
    before = other.queue("q").config()
    with suppress(TickwheelError):
        held.finish()
        late._run(QueueDeletion(late._context, "q", True, deletion.token).next())
        pytest.fail("the deletion continues")
    assert other.queue("q").config() == before
    assert ids(other) == sorted(IDS)
    other.queue("q").enqueue()


@pytest.mark.parametrize("script", ["purge", "drop_queue", "delete_queue"])
def test_a_late_step_of_a_deletion_does_not_change_the_next_queue(open_client: Open, script: str) -> None:
    late, other = open_client(), open_client()
    fill(other)
    deletion = QueueDeletion(late._context, "q", True)
    held = HeldPlan(late, deletion.next())
    while not held.run_until_script(script):
        held = HeldPlan(late, deletion.next())
    version = other.queue("q").config().version
    other.delete_queue("q", purge=True)
    fill(other)
    # The next queue has the same version.
    while other.queue("q").config().version < version:
        other.queue("q").block(dequeue=not other.queue("q").config().dequeue_blocked)
    before = other.queue("q").config()
    assert before.version == version
    with pytest.raises(TickwheelError):
        held.finish()
    assert ids(other) == sorted(IDS)
    assert other.queue("q").config() == before
    assert other._run(audit(other._context)) == []


def delete_namespace(client: Tickwheel, token: str, steps: int = 1_000) -> str:
    """Take steps of the deletion of the namespace, by default all of them. Return the token of the next step."""
    while steps:
        deletion = NamespaceDeletion(NamespaceContext(client._context.namespace), token)
        client._run(deletion.next())
        token, steps = deletion.token, 0 if deletion.ended else steps - 1
    return token


@pytest.mark.parametrize("shards", [2, SHARDS, 5])
@pytest.mark.parametrize("step", range(7))
def test_a_late_step_of_a_namespace_deletion_changes_nothing_of_the_next_namespace(
    open_client: Open, namespace: str, step: int, shards: int
) -> None:
    """The process stops before each round trip of the step."""
    # A late first step that has not read anything is executed in full.
    round_trips = 0 if step else 1
    late = open_client(SHARDS)
    while True:
        old = open_client(SHARDS)
        fill(old)
        token = delete_namespace(old, "", step)
        assert token or not step, "the deletion has fewer steps"
        held = HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace), token).next())
        if not held.run_steps(round_trips):
            break
        delete_namespace(old, token)
        new = open_client(shards)
        fill(new)
        with suppress(InvalidArgument):
            held.finish()
        assert ids(new) == sorted(IDS), f"stopped after {round_trips} round trips"
        assert new._run(audit(new._context)) == []
        fill(open_client(shards))
        assert len(new.queue("q").dequeue(MESSAGES)) == MESSAGES
        new.delete_namespace()
        round_trips += 1


def test_a_late_last_step_does_not_end_the_deletion_of_the_next_namespace(open_client: Open, namespace: str) -> None:
    late, old = open_client(), open_client()
    fill(old)
    token = ""
    held = HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace), token).next())
    while not held.run_until_script("remove_metadata"):
        token = delete_namespace(old, token, 1)
        held = HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace), token).next())
    delete_namespace(old, token)
    fill(new := open_client())
    token = delete_namespace(new, "", 1)
    with pytest.raises(InvalidArgument, match="page_token belongs to another deletion"):
        held.finish()
    delete_namespace(new, token)
    assert open_client().queues() == []


# The first step whose page finds keys. The steps before are the begin and one for each shard.
SEARCH = 1 + SHARDS


@pytest.mark.parametrize("first", range(1, 8))
def test_two_late_copies_of_a_page_do_not_mark_and_remove_keys_of_the_next_namespace(
    open_client: Open, namespace: str, first: int
) -> None:
    late = open_client()
    for second in range(1, 8):
        old = open_client()
        fill(old)
        token = delete_namespace(old, "", SEARCH)
        copies = [HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace), token).next()) for _ in range(2)]
        for copy, round_trips in zip(copies, (first, second), strict=True):
            copy.run_steps(round_trips)
        delete_namespace(old, token)
        fill(new := open_client())
        for copy in copies:
            with suppress(InvalidArgument):
                copy.finish()
        assert ids(new) == sorted(IDS), f"stopped after {first} and {second} round trips"
        new.delete_namespace()


@pytest.mark.parametrize("step", range(7))
def test_a_late_step_of_a_namespace_deletion_leaves_no_key(
    open_client: Open, namespace: str, server: Any, step: int
) -> None:
    late, round_trips, is_held = open_client(), 1, True
    while is_held:
        fill(old := open_client())
        token = delete_namespace(old, "", step)
        held = HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace), token).next())
        is_held = held.run_steps(round_trips)
        if is_held:
            delete_namespace(old, token)
            with suppress(InvalidArgument, NamespaceNotFound):
                held.finish()
            assert list(server.scan_iter(match=f"{namespace}:*", count=10_000)) == []
            round_trips += 1


@pytest.mark.parametrize("script", FIRST_SCRIPTS)
def test_a_late_first_step_does_not_mark_a_queue_whose_deletion_was_undone(open_client: Open, script: str) -> None:
    late, other = open_client(), open_client()
    fill(other)
    steps = Steps(other, make_deletion)
    late_deletion, plan = steps.prepare(late)
    repeated = steps.prepare(open_client())
    held = HeldPlan(late, plan)
    assert held.run_until_script(script)
    steps.take(1)
    with pytest.raises(QueueNotEmpty):
        other.delete_queue("q")
    held.finish()
    other._run(repeated[1])
    assert late_deletion.token == repeated[0].token == steps.token
    assert not other.queue("q").config().deleting
    other.queue("q").enqueue()


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_repeated_last_step_of_a_deletion_returns_the_first_answer(open_client: Open, is_created_again: bool) -> None:
    first, other = open_client(), open_client()
    fill(other)
    steps = Steps(other, make_deletion)
    while not steps.token.endswith("/end"):
        steps.take(1)
    held = HeldPlan(first, steps.prepare(first)[1])
    # The process ends before it stores its answer.
    assert held.run_until_script("delete_queue")
    held.run_steps(1)
    another = open_client()
    if is_created_again:
        fill(another)
    assert steps.take(1) == 0
    assert steps.ended
    assert len(another.queues()) == is_created_again
    assert not is_created_again or ids(another) == sorted(IDS)


def test_a_late_first_step_does_not_hide_a_namespace_whose_deletion_was_refused(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as late,
        Tickwheel(tickwheel_server.url, namespace=namespace) as other,
    ):
        held = HeldPlan(late, NamespaceDeletion(NamespaceContext(namespace)).next())
        assert held.run_until_script("hide_namespace")
        other.queue("q").enqueue(id="m")
        with pytest.raises(NamespaceInUse, match="not relayed"):
            other.delete_namespace()
        assert not server.hexists(namespace_key(namespace), "deletion")
        with pytest.raises(InvalidArgument, match="another program has begun or ended a deletion"):
            held.finish()
        assert other.queue("q").enqueue(id="n").created


def test_the_first_stored_answer_of_a_step_counts(open_client: Open) -> None:
    late, other = open_client(), open_client()
    fill(other)
    steps = Steps(other, make_deletion)
    late_deletion, plan = steps.prepare(late)
    repeated, repeated_plan = steps.prepare(open_client())
    held = HeldPlan(late, plan)
    assert held.run_until_script("sync_queue_version")
    # The process stops before it stores its answer. The deletion is undone, and the call begins it again.
    assert held.run_until_script("register_call")
    with pytest.raises(QueueNotEmpty):
        open_client().delete_queue("q")
    steps.take(1)
    held.finish()
    other._run(repeated_plan)
    assert late_deletion.token == repeated.token == steps.token
    steps.take()
    assert other.queues() == []
