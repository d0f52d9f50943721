"""The ends of leases by the clock of a worker: when a lease is lost, and when a process without a supervisor ends."""

import pickle
from collections.abc import Iterator
from math import inf

import pytest

from tickwheel import Message
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.supervisor_watch import DRAINED, LEASE_OVER, MARGIN_S, reason_to_end, seconds_left

pytestmark = pytest.mark.unit


@pytest.fixture
def state() -> Iterator[SharedState]:
    state = SharedState(2)
    state.batches[0].begin(1, [100.0, 200.0])
    yield state
    state.close()


def test_a_lease_lasts_from_the_time_at_which_its_dequeue_was_sent() -> None:
    message = Message.by_lease("orders", 1, "m1", None, bytes(16), 1)
    message._lease_ms = 30_000
    message._hold_since(70.0)
    assert message._held_until == 100.0


def test_a_pickled_message_has_no_time_of_the_clock_of_another_process() -> None:
    message = Message.by_lease("orders", 1, "m1", None, bytes(16), 1)
    message._held_until = 100.0
    assert pickle.loads(pickle.dumps(message))._held_until == 0


def test_a_lease_is_over_at_its_end_by_the_clock_of_the_worker(state: SharedState) -> None:
    batch = state.batches[0]
    assert [batch.is_over(0, now) for now in (99.9, 100.0, 150.0)] == [False, True, True]
    assert [batch.is_over(1, now) for now in (150.0, 200.0)] == [False, True]


def test_a_renewal_makes_a_lease_good_again_and_never_shortens_it(state: SharedState) -> None:
    batch = state.batches[0]
    batch.renew(0, 160.0)
    assert [batch.is_over(0, now) for now in (159.9, 160.0)] == [False, True]
    batch.renew(0, 120.0)
    assert not batch.is_over(0, 159.9)


def test_a_lease_that_the_server_has_refused_stays_lost_after_a_renewal(state: SharedState) -> None:
    batch = state.batches[0]
    batch.mark_lost(0)
    batch.renew(0, inf)
    assert (batch.is_lost(0), batch.is_marked_lost(0), batch.is_marked_lost(1)) == (True, True, False)


def test_a_lease_that_is_over_is_not_marked_as_lost(state: SharedState) -> None:
    batch = state.batches[1]
    batch.begin(1, [0.0, inf])
    assert [(batch.is_lost(n), batch.is_marked_lost(n)) for n in range(2)] == [(True, False), (False, False)]


def test_the_first_lease_of_a_running_task_counts(state: SharedState) -> None:
    assert state.running_until == inf
    state.batches[0].start(1, 60.0)
    assert state.running_until == 200.0
    state.batches[2].begin(1, [150.0])
    state.batches[2].start(0, 60.0)
    assert state.running_until == 150.0


@pytest.mark.parametrize(
    ("now", "drained_at", "leased_until", "reason"),
    [
        (10.0, 300.0, 20.0, ""),
        (20.0 - MARGIN_S, 300.0, 20.0, LEASE_OVER),
        (19.0, 15.0, 20.0, DRAINED),
        (19.0, 300.0, inf, ""),
        (300.0, 300.0, inf, DRAINED),
    ],
)
def test_a_process_without_a_supervisor_ends_before_its_lease_and_after_the_drain(
    now: float, drained_at: float, leased_until: float, reason: str
) -> None:
    assert reason_to_end(now, drained_at, leased_until) == reason


def test_a_process_without_a_supervisor_waits_until_the_earlier_of_both_ends() -> None:
    assert seconds_left(10.0, 300.0, 20.0) == 10.0 - MARGIN_S
    assert seconds_left(10.0, 12.0, 20.0) == 2.0
    assert seconds_left(10.0, 12.0, 5.0) == 0.0
