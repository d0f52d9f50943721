"""Sixteen worker processes on a hundred exclusive values: no two messages of a value are leased at the same time."""

import random
import sys
from collections import defaultdict
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from services.process import Process
from tests.fault.event_processes import EventProcessChild
from tests.fault.faulty_server import FaultyServer
from tests.support.outbox import read_outbox, states_of
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.doctor import audit
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.fault

WORKERS, VALUES, MESSAGES = 16, 100, 1_600
# The namespace has one shard, so that the history has all events in one order.
ROOT = Path(__file__).parents[2]


class Worker(Process):
    """A worker process that prints its record."""

    def __init__(self, url: str, namespace: str, name: str, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.fault.exclusive_worker", url, namespace, name]
        super().__init__(name, command, folder, cwd=ROOT)

    def record(self) -> list[list[str]]:
        """Return the words of each line of the record."""
        lines = [line.split() for line in self.log.splitlines()]
        return [words for words in lines if words and words[0] in ("ready", "has", "ends", "lost")]


def messages() -> list[NewMessage]:
    chance = random.Random(1)
    return [
        NewMessage(
            id=f"m{n}",
            delay=timedelta(milliseconds=chance.choice([0, 0, 500, 3_000])),
            deadline=timedelta(seconds=chance.randrange(100)),
            metadata={
                "project": f"p{n % VALUES}",
                "colour": chance.choice(["red", "blue"]),
                "size": chance.choice(["big", "small"]),
            },
        )
        for n in range(MESSAGES)
    ]


def test_two_messages_of_an_exclusive_value_are_never_leased_at_the_same_time(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    with (
        Tickwheel(faulty.url, namespace="many", history="relay") as tickwheel,
        EventProcessChild(faulty.url, "many", tmp_path / "lock"),
        ExitStack() as stack,
    ):
        work = tickwheel.create_queue(
            "work", exclusive_key="project", lease=timedelta(seconds=1), max_attempts=20, backoff=timedelta(0)
        )
        workers = [stack.enter_context(Worker(faulty.url, "many", f"w{n}", tmp_path)) for n in range(WORKERS)]
        eventually(lambda: all(worker.record() for worker in workers), "all workers are ready", 60)
        work.enqueue_many(messages())
        # Kill some workers that hold messages. Their leases expire.
        for share, worker in zip((0.2, 0.4, 0.6), workers[:3], strict=True):
            eventually(lambda: work.counts()["completed"] > share * MESSAGES, "messages are completed", 60)  # noqa: B023
            worker.kill()
        eventually(lambda: work.counts()["completed"] == MESSAGES, "all messages are completed", 60)
        for worker in workers[3:]:
            assert worker.stop() == 0
        findings = tickwheel._run(audit(tickwheel._context))
        with faulty.client() as client:
            transitions = read_outbox(client, "many")

    assert findings == []
    assert overlaps_in_history(transitions) == []
    assert overlaps_in_records(workers[3:]) == []
    ends = [states_of(transitions, f"m{n}")[-1] for n in range(MESSAGES)]
    assert set(ends) == {"completed"}
    assert 1 < max(transition.attempt for transition in transitions) <= 20
    assert len({transition.worker for transition in transitions if transition.worker}) == WORKERS


def test_the_overlap_check_finds_an_overlap() -> None:
    def step(id: str, value: str, before: State, after: State) -> OutboxTransition:
        return OutboxTransition(1, id, value, 1, 1, before, after, 0, 0, 1)

    leased, leased_too = (step(id, "p1", State.PENDING, State.RUNNING) for id in ("a", "b"))
    done = step("a", "p1", State.RUNNING, State.COMPLETED)
    assert overlaps_in_history([leased, done, leased_too]) == []
    assert overlaps_in_history([leased, leased_too]) == [("p1", "b")]


def overlaps_in_history(transitions: list[OutboxTransition]) -> list[tuple[str | None, str]]:
    """Return the messages that became Running while another message of their value was Running."""
    running: dict[str | None, str] = {}
    overlaps = []
    for transition in transitions:
        if transition.to_state is State.RUNNING:
            if transition.exclusive_value in running:
                overlaps.append((transition.exclusive_value, transition.id))
            running[transition.exclusive_value] = transition.id
        elif transition.from_state is State.RUNNING:
            assert running.pop(transition.exclusive_value) == transition.id
    return overlaps


def overlaps_in_records(workers: list[Worker]) -> list[tuple[str, str, str]]:
    """Return the overlaps by the records of the workers, whose processes share one clock.

    If a worker lost its lease, another worker may rightly hold the value at the same time: such leases do not count.
    """
    intervals: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for worker in workers:
        starts: dict[str, int] = {}
        lost = {tuple(line[1:4]) for line in worker.record() if line[0] == "lost"}
        for action, value, id, attempt, at in worker.record():
            if action == "has":
                starts[id] = int(at)
            elif action == "ends" and (value, id, attempt) not in lost:
                intervals[value].append((starts.pop(id), int(at), id))
    assert sum(map(len, intervals.values())) > MESSAGES / 2
    return [
        (value, first[2], second[2])
        for value, leases in intervals.items()
        for first, second in zip(sorted(leases), sorted(leases)[1:], strict=False)
        if second[0] < first[1]
    ]
