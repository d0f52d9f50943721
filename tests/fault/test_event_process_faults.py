"""Event processes, killed and frozen: what they left undone is done once by the next, and nothing by them."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Contents
from tests.fault.backlog import SOON, Backlog
from tests.fault.event_processes import EventProcessChild, fence, wait_for_a_claim
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.doctor import audit
from tickwheel.model.validation import from_ms
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import State
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.fault

KILLS = 200 if os.environ.get("TICKWHEEL_SOAK") else 20
# With less left to do, more messages are added: each process must have more to do than it lives to finish.
FEW_MESSAGES, FEW_SLOTS = 5_000, 3


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    namespace = f"fault-{os.urandom(6).hex()}"
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as found:
        yield found
    tickwheel_server.clear(namespace)


@pytest.mark.timeout(1_800)
def test_killed_at_any_point_of_cascade_and_promote_nothing_is_lost_or_early_or_done_twice(
    tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    chance, killed_at = random.Random(0), Counter[str]()
    with sandbox(tickwheel_server, history="relay") as (tickwheel, clock):
        namespace, lock = tickwheel._context.namespace, tmp_path / "lock"
        backlog = Backlog(tickwheel, clock, server, chance)
        # What it has done, what is left of it, and after how much more of it the process is killed at most.
        works = {
            "cascade": (backlog.cascades, backlog.left_to_cascade, 3),
            "promote": (backlog.promoted, backlog.left_to_promote, 1_000),
        }
        while killed_at.total() < KILLS:
            if backlog.left_to_promote() < FEW_MESSAGES or backlog.left_to_cascade() < FEW_SLOTS:
                backlog.grow()
            backlog.add_what_is_due_soon()
            work = chance.choice(list(works))
            done, left, most = works[work]
            enough = done() + chance.randint(1, most)
            with EventProcessChild(tickwheel_server.url, namespace, lock) as process:
                eventually(partial(has_reached, done, enough), f"it gets to {work}", pause=0)
                # A call takes a millisecond or so: until any point between here and its end, or of the next ones.
                for _ in range(chance.randrange(40)):
                    server.ping()
                process.kill()
            # On a machine that stalls the process may have come to the end before: that was not in the middle.
            killed_at[work] += left() > 0
            if killed_at.total() == KILLS // 2:
                assert not tickwheel._run(audit(tickwheel._context))

        with EventProcessChild(tickwheel_server.url, namespace, lock):
            last = datetime.now(UTC) + SOON
            expected = {id for id, moment in backlog.due.items() if moment <= last}
            eventually(lambda: backlog.promoted() == len(expected), "all promoted that is due", 60)
        assert not tickwheel._run(audit(tickwheel._context))
        promoted = [one for one in read_outbox(server, namespace) if one.to_state == State.PENDING]

    assert Counter(one.id for one in promoted) == Counter(expected)
    # Exact: the server's clock tells both, in whole ms, a `due` between two of them rounded up.
    assert [one for one in promoted if from_ms(one.time_ms) < backlog.due[one.id]] == []


def has_reached(done: Callable[[], int], enough: int) -> bool:
    return done() >= enough


def test_a_process_frozen_through_a_takeover_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, server: Any, tickwheel_server: PrivateServer, contents: Contents, tmp_path: Path
) -> None:
    namespace = tickwheel._context.namespace
    jobs = tickwheel.create_queue("jobs")
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of one host") as frozen:
        wait_for_a_claim(server, namespace, None)
        # Due while nobody drives, so that it wakes with something to fire.
        due = datetime.now(UTC) + timedelta(seconds=4)
        jobs.enqueue_many(NewMessage(due=due) for _ in range(2_000))
        eventually(lambda: server.xlen(shard_key(namespace, 0, "inbox")) == 0, "it has them in its wheel")
        frozen.pause()
        with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of another host"):
            wait_for_a_claim(server, namespace, fence(server, namespace))
        jobs.enqueue_many(NewMessage(due=due) for _ in range(2_000))
        eventually(lambda: datetime.now(UTC) > due, "they are due")
        before = contents(namespace)

        frozen.resume()
        assert frozen.wait(30) != 0
        assert contents(namespace) == before
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of another host"):
        eventually(lambda: jobs.counts()["pending"] == 4_000, "the next goes on")
    assert not tickwheel._run(audit(tickwheel._context))
