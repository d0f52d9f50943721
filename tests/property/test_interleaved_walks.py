"""Another client changes the queue between two calls of a split walk.

If a call may read only few index entries, a filtered dequeue takes several calls, and continues at the cursor of the
previous call. In between, any other client may lease, finish, cancel, reschedule and enqueue messages.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.property.mutants import Mutant, load_mutant
from tickwheel import IdConflict, InvalidTransition, Message, MessageNotFound, NewMessage, Queue, TickwheelError, limits
from tickwheel.doctor import audit
from tickwheel.operations import dispatch, inspect
from tickwheel.operations.dequeue import Dequeue
from tickwheel.testing import PrivateServer, VirtualClock, sandbox

pytestmark = pytest.mark.property

VALUES = [f"v{n}" for n in range(6)]
IDS = [f"m{n}" for n in range(60)]
HOUR = timedelta(hours=1)
RETENTION = timedelta(minutes=5)
MORE = 1


class OtherClient:
    """Changes the queue at random, and knows which messages are leased."""

    def __init__(self, queue: Queue, clock: VirtualClock, random: random.Random) -> None:
        self.queue, self.clock, self.random = queue, clock, random
        self.exclusive = queue.config().exclusive_key is not None
        self.leased: dict[tuple[str, str], Message] = {}

    def new_message(self) -> NewMessage:
        metadata = {key: self.random.choice("ab") for key in ("kind", "hot", "size") if self.random.random() < 0.8}
        metadata["value"] = self.random.choice(VALUES)
        deadline = timedelta(hours=self.random.randint(1, 30))
        return NewMessage(id=self.random.choice(IDS), metadata=metadata, deadline=deadline)

    def new_filter(self) -> dict[str, str]:
        return {key: self.random.choice("ab") for key in self.random.sample(["kind", "hot", "size"], 2)}

    def name(self, value: str, id: str) -> tuple[str, str]:
        return value if self.exclusive else "", id

    def lease(self, where: dict[str, str] | None, limit: int) -> list[Message]:
        messages = self.queue.dequeue(limit=limit, where=where)
        for message in messages:
            name = self.name(message.metadata["value"], message.id)
            assert (where or {}).items() <= message.metadata.items()
            assert name not in self.leased, "a leased message is leased again"
            if self.exclusive:
                assert name[0] not in {value for value, _ in self.leased}, "two leased messages of an exclusive value"
            self.leased[name] = message
        return messages

    def settle(self) -> None:
        if self.leased:
            message = self.leased.pop(self.random.choice(list(self.leased)))
            actions: list[Callable[[], object]] = [
                message.complete,
                message.release,
                partial(message.fail, retry_in=timedelta(0)),
            ]
            self.random.choice(actions)()

    def enqueue(self) -> None:
        with suppress(IdConflict):
            self.queue.enqueue_many([self.new_message()])

    def change(self) -> None:
        """Make a few random changes."""
        for _ in range(self.random.randint(1, 4)):
            value, id = self.random.choice(VALUES), self.random.choice(IDS)
            arguments = (id, value) if self.exclusive else (id,)
            match self.random.randrange(8):
                case 0:
                    self.lease(None, self.random.randint(1, 2))
                case 1:
                    self.lease(self.new_filter(), self.random.randint(1, 2))
                case 2 | 3:
                    self.settle()
                case 4 | 5:
                    self.enqueue()
                case 6:
                    # Not a leased message: the walk may have leased it, and not returned it yet.
                    with suppress(MessageNotFound):
                        if self.queue.get(*arguments).state != "running":
                            self.queue.cancel(*arguments)
                    self.clock.advance(RETENTION + timedelta(seconds=1))
                case 7:
                    deadline = timedelta(hours=self.random.randint(1, 30))
                    with suppress(MessageNotFound, InvalidTransition):
                        self.queue.reschedule(*arguments, deadline=deadline)


@contextmanager
def changes_between_calls(change: Callable[[], object]) -> Iterator[None]:
    """Call ``change`` after each reply that does not end the walk."""
    parse_reply, is_changing = Dequeue._parse_reply, False

    def parse_then_change(dequeue: Dequeue, shard: int, reply: Any) -> Any:
        nonlocal is_changing
        parsed = parse_reply(dequeue, shard, reply)
        if parsed[0] == MORE and not is_changing:
            is_changing = True
            try:
                change()
            finally:
                is_changing = False
        return parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dequeue, "_parse_reply", parse_then_change)
        yield


def dequeue_with_changes(server: PrivateServer, *, exclusive: bool, entries: int, seed: int) -> None:
    """Dequeue with filters, while another client changes the queue. Then lease all that is left."""
    with sandbox(server) as (tickwheel, clock), pytest.MonkeyPatch.context() as patch:
        queue = tickwheel.create_queue(
            "walked", exclusive_key="value" if exclusive else None,
            max_attempts=1_000, retention=RETENTION, lease=timedelta(hours=12),
        )  # fmt: skip
        other = OtherClient(queue, clock, random.Random(seed))
        for _ in range(100):
            other.enqueue()
        patch.setattr(limits, "CALL_ENTRIES", entries)
        for _ in range(15):
            with changes_between_calls(other.change):
                other.lease(other.new_filter(), other.random.choice([1, 2, 5]))
            other.settle()
        while other.leased:
            other.settle()
        assert not tickwheel._run(audit(tickwheel._context))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("entries", [2, 5, 12])
@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
def test_changes_between_the_calls_of_a_walk_harm_no_index(
    tickwheel_server: PrivateServer, exclusive: bool, entries: int, seed: int
) -> None:
    dequeue_with_changes(tickwheel_server, exclusive=exclusive, entries=entries, seed=seed)


def enqueue_others(queue: Queue) -> None:
    """Enqueue messages that have one of the pairs. The pair ``kind=a`` is the rarer one."""
    others = {"kind": "a"}, {"hot": "a"}, {"hot": "a"}
    queue.enqueue_many(
        NewMessage(metadata=metadata | {"value": f"other{n}-{at}"}, deadline=2 * HOUR)
        for n in range(60)
        for at, metadata in enumerate(others)
    )


@contextmanager
def split_walk(
    server: PrivateServer, change: Callable[[Queue, VirtualClock], object]
) -> Iterator[tuple[Queue, dict[str, str]]]:
    """Yield a queue and a filter. A dequeue takes several calls. ``change`` runs once, between two of them.

    The pair ``kind=a`` is the rarest of the filter. Of its messages, only "first" and "second" have the other pair.
    """
    with sandbox(server) as (tickwheel, clock), pytest.MonkeyPatch.context() as patch:
        queue = tickwheel.create_queue("q", exclusive_key="value", retention=RETENTION, lease=timedelta(hours=12))
        matching = {"kind": "a", "hot": "a"}
        for value, id, hours in (("v", "first", 24), ("w", "second", 25)):
            queue.enqueue(id="head", metadata={"value": value, "kind": "a"}, deadline=HOUR)
            queue.enqueue(id=id, metadata=matching | {"value": value}, deadline=hours * HOUR)
        enqueue_others(queue)
        patch.setattr(limits, "CALL_ENTRIES", 40)
        changes = iter([lambda: change(queue, clock)])
        with changes_between_calls(lambda: next(changes, lambda: None)()):
            yield queue, matching
        assert next(changes, None) is None, "no call has ended before the walk"
        assert not tickwheel._run(audit(tickwheel._context))


def cancel_head(queue: Queue, _: VirtualClock) -> None:
    """Change the head of a group, so that the walk finds the group again behind its cursor."""
    queue.cancel("head", "v")


def add_more_urgent(queue: Queue, clock: VirtualClock) -> None:
    cancel_head(queue, clock)
    queue.enqueue(id="urgent", metadata={"value": "v", "kind": "a", "hot": "a"}, deadline=12 * HOUR)


def change_pairs(queue: Queue, clock: VirtualClock) -> None:
    """Replace a message that the walk has found by one with other pairs."""
    deadline = queue.get("first", "v").deadline
    queue.cancel("first", "v")
    clock.advance(RETENTION + timedelta(seconds=1))
    queue.enqueue(id="first", metadata={"value": "v", "kind": "a"}, deadline=deadline)


def cancel_first(queue: Queue, _: VirtualClock) -> None:
    """Cancel the message that the walk has found. If the limit is 1, the message has displaced the next one."""
    queue.cancel("first", "v")


def reschedule_first(queue: Queue, _: VirtualClock) -> None:
    """Make the message that the walk has found less urgent than the one that it has displaced."""
    queue.reschedule("first", "v", deadline=500 * HOUR)


@dataclass(frozen=True, slots=True)
class Case:
    change: Callable[[Queue, VirtualClock], object]
    limit: int
    expected: list[str]

    def check(self, server: PrivateServer) -> None:
        with split_walk(server, self.change) as (queue, where):
            assert [message.id for message in queue.dequeue(limit=self.limit, where=where)] == self.expected


GROUP_AGAIN = Case(cancel_head, 10, ["first", "second"])
OTHER_PAIRS = Case(change_pairs, 10, ["second"])
CANDIDATE_LOST = Case(cancel_first, 1, ["second"])
LESS_URGENT = Case(reschedule_first, 1, ["second"])
CASES = [GROUP_AGAIN, Case(add_more_urgent, 10, ["urgent", "second"]), OTHER_PAIRS, CANDIDATE_LOST, LESS_URGENT]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.change.__name__)
def test_a_walk_leases_one_matching_message_of_a_value(tickwheel_server: PrivateServer, case: Case) -> None:
    case.check(tickwheel_server)


def check_a_replaced_candidate(server: PrivateServer) -> None:
    """The walk finds the group of its candidate again, and then the candidate is cancelled."""
    with sandbox(server) as (tickwheel, _), pytest.MonkeyPatch.context() as patch:
        queue = tickwheel.create_queue("q", exclusive_key="value", lease=timedelta(hours=12))
        for value, count in (("v", 60), ("w", 0)):
            queue.enqueue(id="head", metadata={"value": value, "kind": "a"}, deadline=HOUR)
            queue.enqueue_many(
                NewMessage(metadata={"value": value, "kind": "a"}, deadline=3 * HOUR) for _ in range(count)
            )
        for value, id, hours in (("v", "first", 24), ("w", "second", 25)):
            queue.enqueue(id=id, metadata={"value": value, "kind": "a", "hot": "a"}, deadline=hours * HOUR)
        enqueue_others(queue)
        patch.setattr(limits, "CALL_ENTRIES", 100)
        changes = iter([lambda: queue.cancel("head", "v"), lambda: queue.cancel("first", "v")])
        with changes_between_calls(lambda: next(changes, lambda: None)()):
            assert [message.id for message in queue.dequeue(where={"kind": "a", "hot": "a"})] == ["second"]
        assert next(changes, None) is None, "the walk has ended too early"


def test_a_walk_that_loses_a_candidate_that_it_would_find_again_finds_the_next(
    tickwheel_server: PrivateServer,
) -> None:
    check_a_replaced_candidate(tickwheel_server)


@pytest.mark.parametrize("added", [{"value": "v1", "a": "1"}, {"value": "v3", "a": "1"}])
def test_the_depth_counts_each_message_once_while_values_are_added(
    tickwheel_server: PrivateServer, added: dict[str, str]
) -> None:
    with sandbox(tickwheel_server) as (tickwheel, _), pytest.MonkeyPatch.context() as patch:
        queue = tickwheel.create_queue("q", exclusive_key="value")
        queue.enqueue_many(NewMessage(metadata={"value": "v2", "a": "1", "b": "1"}) for _ in range(60))
        patch.setattr(limits, "CALL_ENTRIES", 50)
        read, changes = dispatch.read_shard, iter([lambda: queue.enqueue(metadata=added)])

        def read_then_change(*arguments: Any) -> Any:
            reply = yield from read(*arguments)
            if reply.value[1]:
                next(changes, lambda: None)()
            return reply

        patch.setattr(inspect, "read_shard", read_then_change)
        assert queue.depth({"a": "1", "b": "1"}) == 60
        assert next(changes, None) is None, "the depth was counted in one call"


def check_random_changes(server: PrivateServer) -> None:
    for seed, entries in itertools.product(range(12), (5, 12)):
        dequeue_with_changes(server, exclusive=True, entries=entries, seed=seed)


@pytest.mark.parametrize(
    ("check", "name", "old", "new"),
    [
        (
            check_random_changes,
            "a group is not checked again",
            "if is_leased(value) then\n                group",
            "if false then\n                group",
        ),
        (check_random_changes, "a leased candidate stays", "and not is_leased((read('>I2c0', name)))", ""),
        (GROUP_AGAIN.check, "a value has two candidates", "remove_candidate(prefix)\n", "\n"),
        (OTHER_PAIRS.check, "a new message of the same name is a candidate", "and rank == old_rank", ""),
        (CANDIDATE_LOST.check, "a displaced candidate is forgotten", "has_lost_candidate = true", ""),
        (
            check_a_replaced_candidate,
            "a replaced candidate is not lost",
            "has_lost_candidate = true\n                    break",
            "break",
        ),
        (
            LESS_URGENT.check,
            "the order of a candidate is kept",
            "deadline == old_deadline and rank == old_rank",
            "true",
        ),
    ],
)
def test_the_changes_detect_a_walk_that_trusts_earlier_calls(
    tickwheel_server: PrivateServer, tmp_path: Path,
    check: Callable[[PrivateServer], None], name: str, old: str, new: str,
) -> None:  # fmt: skip
    mutant = Mutant(name, "_filter_walk", old, new)
    with load_mutant(mutant, tmp_path), pytest.raises((AssertionError, TickwheelError)):
        check(tickwheel_server)
