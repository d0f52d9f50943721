"""An event process is killed or frozen: the next process does its work once, and the old process changes nothing."""

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

KILLS = 200 if os.environ.get("TICKWHEEL_SOAK") else 10
# Below these limits, the test adds messages: each process must have more work than it can finish before it is killed.
FEW_MESSAGES, FEW_SLOTS = 5_000, 3


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    namespace = f"fault-{os.urandom(6).hex()}"
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as client:
        yield client
    tickwheel_server.clear(namespace)


@pytest.mark.timeout(1_800)
def test_event_processes_killed_in_cascade_and_promote_cause_no_lost_early_or_second_promotion(
    tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    chance, killed_at = random.Random(0), Counter[str]()
    with sandbox(tickwheel_server, history="relay") as (tickwheel, clock):
        namespace, lock = tickwheel._context.namespace, tmp_path / "lock"
        backlog = Backlog(tickwheel, clock, server, chance)
        # For each kind of work: the amount done, the amount left, and the maximum amount before the kill.
        works = {
            "cascade": (backlog.cascades, backlog.left_to_cascade, 3),
            "promote": (backlog.promoted, backlog.left_to_promote, 1_000),
        }
        while killed_at.total() < KILLS:
            if backlog.left_to_promote() < FEW_MESSAGES or backlog.left_to_cascade() < FEW_SLOTS:
                backlog.grow()
            backlog.add_messages_due_soon()
            work = chance.choice(list(works))
            done, left, limit = works[work]
            enough = done() + chance.randint(1, limit)
            with EventProcessChild(tickwheel_server.url, namespace, lock) as process:
                eventually(partial(has_reached, done, enough), f"the process starts to {work}", pause=0)
                # A call takes about a millisecond. The pings delay the kill to any point of this call or of later ones.
                for _ in range(chance.randrange(40)):
                    server.ping()
                process.kill()
            # If the machine stalls, the process may finish before the kill. Such a kill does not count.
            killed_at[work] += left() > 0
            if killed_at.total() == KILLS // 2:
                assert not tickwheel._run(audit(tickwheel._context))

        with EventProcessChild(tickwheel_server.url, namespace, lock):
            last = datetime.now(UTC) + SOON
            expected = {id for id, moment in backlog.due.items() if moment <= last}
            eventually(lambda: backlog.promoted() == len(expected), "all due messages are promoted", 60)
        assert not tickwheel._run(audit(tickwheel._context))
        promoted = [transition for transition in read_outbox(server, namespace) if transition.to_state == State.PENDING]

    assert Counter(transition.id for transition in promoted) == Counter(expected)
    # The comparison is exact: the server's clock gives both times in whole ms, and `due` is rounded up to a whole ms.
    assert [early for early in promoted if from_ms(early.time_ms) < backlog.due[early.id]] == []


def has_reached(done: Callable[[], int], enough: int) -> bool:
    return done() >= enough


def test_an_event_process_frozen_during_a_takeover_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, server: Any, tickwheel_server: PrivateServer, contents: Contents, tmp_path: Path
) -> None:
    namespace = tickwheel._context.namespace
    jobs = tickwheel.create_queue("jobs")
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of one host") as frozen:
        wait_for_a_claim(server, namespace, None)
        # The messages become due while no process drives, so that the frozen process has timers to fire when it wakes.
        due = datetime.now(UTC) + timedelta(seconds=4)
        jobs.enqueue_many(NewMessage(due=due) for _ in range(2_000))
        eventually(
            lambda: server.xlen(shard_key(namespace, 0, "inbox")) == 0, "the messages are in the wheel of the process"
        )
        frozen.pause()
        with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of another host"):
            wait_for_a_claim(server, namespace, fence(server, namespace))
        jobs.enqueue_many(NewMessage(due=due) for _ in range(2_000))
        eventually(lambda: datetime.now(UTC) > due, "the messages are due")
        before = contents(namespace)

        frozen.resume()
        assert frozen.wait(30) != 0
        assert contents(namespace) == before
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock of another host"):
        eventually(lambda: jobs.counts()["pending"] == 4_000, "the next process promotes all messages")
    assert not tickwheel._run(audit(tickwheel._context))
