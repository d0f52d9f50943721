"""Sinks get many places for messages in flight only after their broker has acknowledged a message."""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tickwheel.sinks.confirmed_sinks import BYTES, MESSAGES, UNCONFIRMED_BYTES, UNCONFIRMED_MESSAGES, ConfirmedSinks

pytestmark = pytest.mark.unit

A, B = "kafka://a", "kafka://b"


def lease(sinks: ConfirmedSinks, sink: str, size: int = 1) -> None:
    assert sinks.limit(sink)
    sinks.on_leased(sink, size)


def answer(sinks: ConfirmedSinks, sink: str, *, acknowledged: bool, size: int = 1) -> None:
    sinks.on_answer(sink, acknowledged=acknowledged)
    sinks.on_settled(sink, size)


def test_a_sink_has_one_message_in_flight_until_its_broker_has_acknowledged_one() -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    assert (sinks.limit(A), sinks.limit(B)) == (0, 1)
    answer(sinks, A, acknowledged=True)
    assert (sinks.limit(A), sinks.limit(B)) == (MESSAGES // 4, 1)
    lease(sinks, A)
    lease(sinks, A)
    answer(sinks, A, acknowledged=False)
    assert sinks.limit(A) == 0
    answer(sinks, A, acknowledged=False)
    assert sinks.limit(A) == 1


def test_a_message_whose_lease_is_lost_gives_its_place_back() -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    sinks.on_settled(A, 1)
    assert sinks.limit(A) == 1


@pytest.mark.parametrize(
    ("count", "size"), [(UNCONFIRMED_MESSAGES, 1), (4, UNCONFIRMED_BYTES // 4)], ids=["messages", "bytes"]
)
def test_all_unconfirmed_sinks_have_a_part_of_the_places(count: int, size: int) -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    answer(sinks, A, acknowledged=True)
    for n in range(count):
        lease(sinks, f"kafka://missing-{n}", size)
    assert (sinks.limit(B), sinks.limit(A)) == (0, (MESSAGES - count) // 4)
    sinks.wait(B, "b")
    assert not list(sinks.take_ready())
    answer(sinks, "kafka://missing-0", acknowledged=False, size=size)
    assert list(sinks.take_ready()) == ["b"]


def confirm(sinks: ConfirmedSinks, *names: str) -> None:
    for sink in names:
        lease(sinks, sink)
        answer(sinks, sink, acknowledged=True)


def fill(sinks: ConfirmedSinks, sink: str, size: int = 1) -> int:
    """Lease as many messages as possible for a sink whose topic acknowledges none. Return the number."""
    leased = 0
    while count := sinks.limit(sink):
        for _ in range(count):
            sinks.on_leased(sink, size)
        leased += count
    return leased


def test_topics_that_stop_to_acknowledge_leave_places_for_other_sinks() -> None:
    sinks = ConfirmedSinks()
    stopped = [f"kafka://stopped-{n}" for n in range(10)]
    confirm(sinks, A, *stopped)
    assert [fill(sinks, sink) for sink in stopped[:3]] == [250, 187, 140]
    for sink in stopped[3:]:
        fill(sinks, sink)
    # A sink without a message in flight gets places, and again each time when they are free.
    for _ in range(3):
        count = fill(sinks, A)
        assert count > 10
        for _ in range(count):
            answer(sinks, A, acknowledged=True)
    # So does a new sink.
    assert sinks.limit(B) == 1


def test_a_topic_with_large_messages_that_stops_to_acknowledge_leaves_bytes_for_other_sinks() -> None:
    sinks = ConfirmedSinks()
    confirm(sinks, A, B)
    while sinks.limit(A):
        sinks.on_leased(A, BYTES // 16)
    assert sinks._by_sink[A].size == BYTES // 4
    assert sinks.limit(B) > 200


def test_a_sink_with_messages_in_flight_gets_places_in_batches() -> None:
    sinks = ConfirmedSinks()
    confirm(sinks, A)
    assert fill(sinks, A) == 250
    for _ in range(99):
        answer(sinks, A, acknowledged=True)
    sinks.wait(A, "a")
    assert (sinks.limit(A), list(sinks.take_ready())) == (0, [])
    answer(sinks, A, acknowledged=True)
    assert (sinks.limit(A), list(sinks.take_ready())) == (100, ["a"])


def test_the_queues_of_a_sink_wait_for_its_answer_and_take_turns() -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    for queue in ("one", "two", "one"):
        sinks.wait(A, queue)
    assert not list(sinks.take_ready())
    answer(sinks, A, acknowledged=False)
    assert list(sinks.take_ready()) == ["one", "two"]
    assert not list(sinks.take_ready())


def test_queues_without_messages_hold_no_others_up() -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    names = [f"q{n}" for n in range(2 * UNCONFIRMED_MESSAGES + 100)]
    for name in names:
        sinks.wait(f"kafka://{name}", name)
    answer(sinks, A, acknowledged=True)
    calls = [list(sinks.take_ready()) for _ in range(4)]
    assert [len(queues) for queues in calls] == [UNCONFIRMED_MESSAGES, UNCONFIRMED_MESSAGES, 100, 0]
    assert [queue for queues in calls for queue in queues] == names


def test_other_sinks_are_forgotten_after_a_change_of_the_queues() -> None:
    sinks = ConfirmedSinks()
    for sink in (A, B):
        lease(sinks, sink)
        answer(sinks, sink, acknowledged=True)
    lease(sinks, B)
    sinks.wait("kafka://c", "c")
    sinks.forget_others({})
    # The message in flight still counts as one of a confirmed sink.
    assert (sinks.limit(A), sinks.limit(B)) == (1, (MESSAGES - 4) // 4)
    sinks.on_settled(B, 1)
    assert not list(sinks.take_ready())
    sinks.forget_others({})
    assert sinks.limit(B) == 1


def test_a_queue_waits_on_after_a_change_of_other_queues() -> None:
    sinks = ConfirmedSinks()
    lease(sinks, A)
    for queue in ("a", "removed", "moved"):
        sinks.wait(A, queue)
    sinks.forget_others({"a": A, "moved": B})
    answer(sinks, A, acknowledged=True)
    assert list(sinks.take_ready()) == ["a"]


class Bookkeeping(RuleBasedStateMachine):
    """The totals agree with the messages in flight, in any order of events."""

    urls = st.sampled_from([A, B, "kafka://c"])

    def __init__(self) -> None:
        super().__init__()
        self.sinks = ConfirmedSinks()
        self.in_flight: list[tuple[str, int]] = []

    @rule(url=urls, size=st.integers(1, UNCONFIRMED_BYTES))
    def leases(self, url: str, size: int) -> None:
        if self.sinks.limit(url):
            self.sinks.on_leased(url, size)
            self.in_flight.append((url, size))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), acknowledged=st.sampled_from([True, False, None]))
    def settles(self, data: st.DataObject, acknowledged: bool | None) -> None:
        url, size = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        if acknowledged is not None:
            self.sinks.on_answer(url, acknowledged=acknowledged)
        self.sinks.on_settled(url, size)

    @rule(urls=st.sets(urls))
    def changes_the_queues(self, urls: set[str]) -> None:
        self.sinks.forget_others({url: url for url in urls})

    @invariant()
    def totals_agree(self) -> None:
        unconfirmed = [size for url, size in self.in_flight if url not in self.sinks._confirmed]
        for total, sizes in (
            (self.sinks._unconfirmed, unconfirmed),
            (self.sinks._total, [s for _, s in self.in_flight]),
        ):
            assert (total.messages, total.size) == (len(sizes), sum(sizes))
        assert set(self.sinks._by_sink) == {url for url, _ in self.in_flight}


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=30, deadline=None)
