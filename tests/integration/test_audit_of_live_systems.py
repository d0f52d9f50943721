"""The audit reports no change that a client makes while the audit reads the namespace."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import pytest
import redis

from tickwheel import Message, NewMessage, Tickwheel
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.doctor.shard_reader import PAGE
from tickwheel.plan import Plan, Round, Step
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration
T = TypeVar("T")


class HotQueue:
    """A queue that changes quickly: by ``start`` at the start of each pass, and by ``change`` during the pass."""

    exclusive_key: str | None = None

    def __init__(self, tw: Tickwheel) -> None:
        self.queue = tw.create_queue("hot", exclusive_key=self.exclusive_key, forecast=True)
        self.leased: list[Message] = []

    def start(self) -> None:
        pass

    def change(self) -> None:
        raise NotImplementedError

    def enqueue(self, id: str | None = None, delay: timedelta | None = None) -> None:
        self.queue.enqueue(b"x" * 300, id=id, metadata={"of": "v", "kind": "a"}, delay=delay)

    def lease(self) -> None:
        self.leased = self.leased or self.queue.dequeue()

    def settle(self, settle: Callable[[Message], object]) -> None:
        for message in self.leased:
            settle(message)
        self.leased = []


class NewMessages(HotQueue):
    """Messages with a body are enqueued, one of them with a delay."""

    def change(self) -> None:
        self.enqueue()
        self.enqueue(delay=timedelta(hours=1))


class ReusedId(HotQueue):
    """A message is leased and removed, and then its id is used again."""

    def start(self) -> None:
        self.settle(Message.complete)
        self.queue.purge(["completed"])
        self.enqueue(id="again")

    def change(self) -> None:
        self.lease()


class ReleasedMessage(HotQueue):
    """One message is released and leased again and again."""

    def __init__(self, tw: Tickwheel) -> None:
        super().__init__(tw)
        self.enqueue()

    def start(self) -> None:
        self.settle(Message.release)

    def change(self) -> None:
        self.lease()


class HotValue(HotQueue):
    """As soon as a message of an exclusive value is completed, the next message of the value is leased."""

    exclusive_key = "of"

    def start(self) -> None:
        self.enqueue()
        self.enqueue()
        self.lease()

    def change(self) -> None:
        self.settle(Message.complete)
        self.lease()


class HotGroup(HotValue):
    """The waiting messages of an exclusive value are parked, until the lease ends."""

    def change(self) -> None:
        self.settle(Message.complete)


def watch(plan: Plan[T], before: Callable[[Step], object]) -> Plan[T]:
    """Run a plan, and call ``before`` with each step before the step."""
    answer = None
    while True:
        try:
            step = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        before(step)
        answer = yield step


def name_place(before: Step | None, step: Step) -> str:
    """Return a name of the place between two rounds: their first commands and keys, without the namespace."""
    rounds = [step for step in (before, step) if isinstance(step, Round)]
    commands = [[str(part).rpartition("}:")[2] for part in r.requests[0].command[:2]] for r in rounds]  # type: ignore[index]
    return ", ".join(" ".join(command) for command in commands)


def audit_with_changes(tw: Tickwheel, hot: HotQueue, place: str) -> tuple[list[str], set[str]]:
    """Audit a namespace that changes at this place in each pass. Return the findings and the names of all places."""
    first: Step | None = None
    last: Step | None = None
    places: set[str] = set()
    changed = False

    def before(step: Step) -> None:
        nonlocal first, last, changed
        first = first or step
        if step == first:
            hot.start()
            last, changed = None, False
        here = name_place(last, step)
        places.add(here)
        if here == place and not changed:
            hot.change()
            changed = True
        last = step

    return tw._run(watch(audit(tw._context, passes=LIVE_PASSES), before)), places


@pytest.mark.parametrize("kind", [NewMessages, ReusedId, ReleasedMessage, HotValue, HotGroup])
@pytest.mark.parametrize("history", ["capped", "off"])
def test_a_change_between_two_rounds_is_not_a_finding(
    kind: type[HotQueue], history: str, tickwheel_server: PrivateServer
) -> None:
    findings: list[str] = []
    places, done = {""}, set[str]()
    while places - done:
        place = min(places - done)
        done.add(place)
        # A new namespace for each audit: old timers would make each audit longer than the one before.
        with sandbox(tickwheel_server, history=history) as (tw, _):
            found, seen = audit_with_changes(tw, kind(tw), place)
        places |= seen
        findings += [f"change at {place}: {text}" for text in found]
    assert len(done) > 20
    assert findings == []


def test_a_release_and_a_lease_between_two_pages_are_not_a_finding(
    tickwheel_server: PrivateServer, server: "redis.Redis"
) -> None:
    changes = 0
    with sandbox(tickwheel_server, history="off") as (tw, _):
        queue, key = tw.create_queue("hot"), shard_key(tw._context.namespace, 0, "messages")
        pending = {f"m{n}" for n in range(1_200)}
        queue.enqueue_many(NewMessage(id=id, metadata={"id": id}) for id in pending)
        leased = {message.id: message for message in queue.dequeue(limit=600)}

        def before(step: Step) -> None:
            nonlocal changes
            command = step.requests[0].command if isinstance(step, Round) else None
            if command and command[0] == "HSCAN" and command[2] != b"0":
                # The counts stay the same, but the walk finds both messages leased.
                first_page = {
                    str(field[2:], "utf-8") for field in cast("dict[bytes, bytes]", server.hscan(key, 0, count=PAGE)[1])
                }
                leased.pop(min(leased.keys() & first_page)).release()
                [message] = queue.dequeue(where={"id": min(pending - leased.keys() - first_page)})
                leased[message.id] = message
                changes += 1

        assert tw._run(watch(audit(tw._context, passes=LIVE_PASSES), before)) == []
        assert changes
