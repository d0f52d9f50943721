"""Readers of the history: their start position, where they continue, and their state when a group moves partitions."""

import os
import threading
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient

from services.kafka import Kafka
from tests.support.kafka_topics import make_topic
from tests.support.wait_until import eventually
from tickwheel import events
from tickwheel.events.encoding import encode
from tickwheel.storage import transition
from tickwheel.storage.record import State

pytestmark = pytest.mark.integration

MESSAGES = [f"m{n}" for n in range(12)]
PARTITIONS = 4
# Two readers are assigned partitions 0 and 1, and 2 and 3. Each reader gets one written partition; 0 stays empty.
WRITTEN = (1, 3)


class History:
    """A topic of transitions that the test writes to some of its partitions in turn."""

    def __init__(self, kafka: Kafka, written: tuple[int, ...] = WRITTEN) -> None:
        self.kafka, self.topic, self._written = kafka, make_topic(kafka, PARTITIONS), written
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def write(self, version: int, ids: list[str] = MESSAGES) -> None:
        for n, id in enumerate(ids):
            to = State.PENDING if version == 1 else State.RUNNING
            happened = transition.OutboxTransition(1, id, None, 1, version, None, to, 0, 0, 0)
            for key, value in encode("tw", "q", [happened]):
                self._producer.produce(self.topic, value, key, self._written[n % len(self._written)])
        assert self._producer.flush(30) == 0

    def wake(self) -> None:
        """Write a new transition to each of the partitions in use."""
        self.write(1, [f"wake {os.urandom(6).hex()}" for _ in self._written])


class Reader:
    """A reader in its own thread, until it leaves."""

    def __init__(self, history: History, **options: Any) -> None:
        self.yielded: list[tuple[str, int]] = []
        self.gaps: list[events.Gap] = []
        self._history, self._options = history, options
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        history = self._history
        for one in events.read(history.kafka.bootstrap, topic=history.topic, on_gap=self.gaps.append, **self._options):
            if self._leaving.is_set():
                return
            if not one.id.startswith("wake"):
                self.yielded.append((one.id, one.version))

    def leave(self) -> None:
        """Abandon the reader at its next transition."""
        self._leaving.set()

        def gone() -> bool:
            self._history.wake()
            self._thread.join(0.2)
            return not self._thread.is_alive()

        eventually(gone, "the reader left", 60)

    def versions(self, id: str) -> list[int]:
        return [version for yielded, version in self.yielded if yielded == id]


def shared_by(kafka: Kafka, group: str, members: int) -> None:
    """Wait until `members` readers of the group have the same number of partitions each."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def settled() -> bool:
        description = admin.describe_consumer_groups([group])[group].result(30)
        shares = [len(member.assignment.topic_partitions) for member in description.members]
        return description.state == ConsumerGroupState.STABLE and shares == [PARTITIONS // members] * members

    eventually(settled, f"{members} readers share the partitions", 60, pause=0.05)


@pytest.fixture
def group() -> str:
    return os.urandom(6).hex()


@pytest.mark.timeout(180)
def test_entries_that_another_reader_of_the_group_read_are_no_gap(kafka: Kafka, group: str) -> None:
    history = History(kafka)
    history.write(1)
    one = Reader(history, group=group)
    eventually(lambda: len(one.yielded) == 12, "the first versions are read", 60)
    other = Reader(history, group=group)
    shared_by(kafka, group, 2)
    history.write(2)
    eventually(lambda: len(one.yielded) + len(other.yielded) == 24, "both read the second versions", 60)
    other.leave()
    shared_by(kafka, group, 1)
    history.write(3)
    eventually(lambda: len(one.yielded) + len(other.yielded) == 36, "the remaining reader reads the third versions", 60)
    one.leave()
    assert [version for _, version in other.yielded] == [2] * 6
    assert [sorted(one.versions(id) + other.versions(id)) for id in MESSAGES] == [[1, 2, 3]] * 12
    assert (one.gaps, other.gaps) == ([], [])


@pytest.mark.timeout(180)
def test_entries_that_are_read_again_after_another_reader_left_are_yielded_once(kafka: Kafka, group: str) -> None:
    history = History(kafka)
    history.write(1)
    history.write(2)
    one = Reader(history, group=group)
    eventually(lambda: len(one.yielded) == 24, "the first versions are read", 60)
    other = Reader(history, group=group)
    shared_by(kafka, group, 2)
    other.leave()
    shared_by(kafka, group, 1)
    for version in (1, 2, 3):
        history.write(version)
    eventually(
        lambda: len({id for id, version in one.yielded if version == 3}) == 12, "the third versions are read", 60
    )
    one.leave()
    assert {id: one.versions(id) for id in MESSAGES} == {id: [1, 2, 3] for id in MESSAGES}
    assert one.gaps == []


def test_the_transition_at_which_a_reader_was_abandoned_is_the_first_of_the_next_reader(
    kafka: Kafka, group: str
) -> None:
    history = History(kafka, (0,))
    ids = [f"m{n}" for n in range(100)]
    history.write(1, ids)

    def read(count: int) -> list[str]:
        transitions = events.read(kafka.bootstrap, topic=history.topic, group=group)
        return [one.id for one in islice(transitions, count)]

    assert read(10) == ids[:10]
    assert read(91) == ids[9:]


@pytest.mark.parametrize("with_group", [False, True])
def test_a_reader_from_the_latest_position_yields_nothing_older(kafka: Kafka, group: str, with_group: bool) -> None:
    history = History(kafka, (0,))
    history.write(1)
    reader = Reader(history, start="latest", group=group if with_group else None)

    def is_read() -> bool:
        history.write(1, [f"new {os.urandom(6).hex()}"])
        return bool(reader.yielded)

    eventually(is_read, "a transition is read", 60, pause=0.05)
    reader.leave()
    assert [id for id, _ in reader.yielded if not id.startswith("new")] == []
