"""The clock guard decides how far a server's clock is trusted. Tests pass every time, so nothing waits."""

import pytest
from hypothesis import given, strategies as st

from tickwheel.driver.clock_guard import ANCHOR_MS, DRIFT, ClockGuard

pytestmark = pytest.mark.unit

# The time of the server at the monotonic time 0.
BASE = 1_700_000_000_000
LIMIT = 1_000


def started(at: float = 0, *, server: int = BASE, wall: float = BASE, high: int | None = None) -> ClockGuard:
    """Return a guard that has observed the server's time once."""
    guard = ClockGuard(LIMIT)
    guard.start(server, at, wall, high)
    guard.observe(server, at, at)
    return guard


def observe(guard: ClockGuard, server: float, at: float, delay: float = 0) -> None:
    """Pass the server's time from a reply that arrived at ``at``, ``delay`` ms after its request."""
    guard.observe(int(server), at - delay, at)


def test_between_checks_time_follows_the_monotonic_clock() -> None:
    guard = started()

    assert guard.now(250.5) == BASE + 250.5
    assert guard.monotonic_at(BASE + 400) == 400


@given(
    st.floats(0, 0.999),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 400)), min_size=1, max_size=30),
)
def test_the_estimate_is_never_ahead_of_a_steady_server_and_hardly_behind_it(
    fraction: float, calls: list[tuple[float, float, float]]
) -> None:
    guard = started()
    moment = 0.0
    for before, after, pause in calls:
        moment += pause
        sent, carried_out, moment = moment, moment + before, moment + before + after
        guard.observe(int(BASE + fraction + carried_out), sent, moment)
        # The first reply was behind by less than 1 ms. The rounding error of numbers of this size is about 0.0002.
        assert guard.now(moment) <= BASE + fraction + moment + 0.001
        assert guard.now(moment) >= BASE + fraction + moment - 1 - moment * DRIFT - 0.001


@pytest.mark.parametrize("step", [1, 40, LIMIT - 1])
def test_a_step_within_the_limit_is_followed(step: int) -> None:
    guard = started()

    observe(guard, BASE + 100 + step, 100)

    assert not guard.is_holding
    assert guard.now(100) == BASE + 100 + step


def test_a_step_over_the_limit_stops_the_estimate() -> None:
    guard = started()

    observe(guard, BASE + 100 + LIMIT + 1, 100)

    assert guard.is_holding
    assert guard.steps == 1
    assert guard.now(100) == guard.now(9_000) == BASE + 100


def test_steps_that_add_up_within_ten_seconds_count_as_one() -> None:
    guard = started()

    for second in range(1, 5):
        observe(guard, BASE + 1_000 * second + 400 * second, 1_000 * second)

    assert guard.is_holding


@pytest.mark.parametrize("parts_per_million", [-1_000, 1_000])
def test_slow_drift_is_followed_indefinitely(parts_per_million: int) -> None:
    guard = started()

    for minute in range(1, 2_000):
        at = 60_000.0 * minute
        server = BASE + at * (1 + parts_per_million / 1e6)
        observe(guard, server, at)
        assert not guard.is_holding
        assert server - 2 <= guard.now(at) <= server


def test_with_a_slow_server_and_slow_replies_the_estimate_is_never_ahead_and_hardly_behind() -> None:
    guard = started()

    # The estimate falls as fast as clocks drift, so no reply contradicts it. A reply proves only the time 200 ms ago.
    for second in range(1, 120):
        at = 1_000.0 * second
        server = BASE + at * (1 - 0.8 * DRIFT)
        observe(guard, server - 200, at, delay=200)
        assert server - 1 - 0.2 * DRIFT * at <= guard.now(at) <= server


def test_a_held_clock_continues_when_the_server_agrees_again() -> None:
    guard = started()
    observe(guard, BASE + 100 + 3_600_000, 100)

    observe(guard, BASE + 5_000, 5_000)

    assert not guard.is_holding
    assert guard.now(5_000) == BASE + 5_000


def test_a_held_clock_does_not_continue_because_time_has_passed() -> None:
    guard = started()

    for second in range(1, 100):
        observe(guard, BASE + 3_600_000 + 1_000 * second, 1_000 * second)

    assert guard.is_holding
    assert guard.steps == 1
    assert guard.now(100_000) == BASE + 1_000


def test_an_operator_accepts_the_time_and_the_next_step_is_guarded_again() -> None:
    guard = started()
    observe(guard, BASE + 3_600_000 + 100, 100)

    guard.accept()
    observe(guard, BASE + 3_600_000 + 300, 300)
    assert not guard.is_holding
    assert guard.now(300) == BASE + 3_600_000 + 300

    observe(guard, BASE + 7_200_000 + 400, 400)
    assert guard.is_holding
    assert guard.steps == 2


def test_accepting_without_a_held_step_changes_nothing() -> None:
    guard = started()

    guard.accept()

    assert guard.now(10) == BASE + 10


def test_a_step_back_is_followed_at_once_and_only_makes_messages_late() -> None:
    guard = started()

    observe(guard, BASE - 3_600_000 + 100, 100)

    assert not guard.is_holding
    assert guard.now(100) <= BASE - 3_600_000 + 101


def test_a_server_that_returns_from_a_short_step_back_is_trusted() -> None:
    guard = started()
    observe(guard, BASE - 60_000 + 100, 100)

    observe(guard, BASE + 2_000, 2_000)

    assert not guard.is_holding
    assert guard.now(2_000) == BASE + 2_000


def stepped_back(by: float) -> ClockGuard:
    """Return a guard that has followed a step back by ``by`` ms for the time of three anchors."""
    guard = started()
    for anchor in range(1, 4):
        observe(guard, BASE + anchor * ANCHOR_MS - by, anchor * ANCHOR_MS)
    return guard


@pytest.mark.parametrize("error", [-LIMIT, 0, LIMIT])
def test_a_server_whose_clock_is_repaired_after_a_long_step_back_is_trusted(error: int) -> None:
    guard = stepped_back(60_000)
    at = 4 * ANCHOR_MS

    observe(guard, BASE + at + error, at)

    assert not guard.is_holding
    assert guard.now(at) == BASE + at + error


@pytest.mark.parametrize("error", [-LIMIT - 1, LIMIT + 1, 60_000])
def test_after_a_step_back_a_step_to_another_time_ahead_is_guarded(error: int) -> None:
    guard = stepped_back(60_000)
    at = 4 * ANCHOR_MS

    observe(guard, BASE + at + error, at)
    assert guard.is_holding
    assert guard.now(at) <= BASE + at - 60_000 + 1

    observe(guard, BASE + at + 250, at + 250)
    assert not guard.is_holding
    assert guard.now(at + 250) == BASE + at + 250


def test_a_slow_reply_does_not_show_that_the_clock_was_repaired() -> None:
    guard = stepped_back(60_000)
    at = 4 * ANCHOR_MS

    observe(guard, BASE + at, at, delay=2 * LIMIT)

    assert guard.is_holding


def test_several_steps_back_are_repaired_by_one_step() -> None:
    guard = stepped_back(60_000)
    observe(guard, BASE + 4 * ANCHOR_MS - 90_000, 4 * ANCHOR_MS)
    observe(guard, BASE + 5 * ANCHOR_MS - 90_000, 5 * ANCHOR_MS)

    observe(guard, BASE + 6 * ANCHOR_MS, 6 * ANCHOR_MS)

    assert not guard.is_holding


def test_a_repaired_clock_is_guarded_as_before() -> None:
    guard = stepped_back(60_000)
    observe(guard, BASE + 4 * ANCHOR_MS, 4 * ANCHOR_MS)
    for anchor in range(5, 8):
        observe(guard, BASE + anchor * ANCHOR_MS, anchor * ANCHOR_MS)

    observe(guard, BASE + 8 * ANCHOR_MS + 60_000, 8 * ANCHOR_MS)

    assert guard.is_holding


def test_a_clock_that_was_slewed_back_to_the_time_before_its_step_is_guarded_as_before() -> None:
    guard = stepped_back(2 * LIMIT)
    for second in range(31, 100):
        observe(guard, BASE + 1_000 * second - max(0, 2 * LIMIT - 40 * (second - 30)), 1_000 * second)
    # The server's clock is slow by 0.05 % for hours. Then it steps ahead to the time that was trusted long ago.
    for minute in range(2, 200):
        observe(guard, BASE + 60_000 * minute * (1 - DRIFT), 60_000 * minute)

    observe(guard, BASE + 60_000 * 200, 60_000 * 200)

    assert guard.is_holding


def test_an_accepted_step_ends_the_memory_of_a_step_back() -> None:
    guard = stepped_back(60_000)
    observe(guard, BASE + 4 * ANCHOR_MS - 30_000, 4 * ANCHOR_MS)
    guard.accept()

    observe(guard, BASE + 5 * ANCHOR_MS, 5 * ANCHOR_MS)

    assert guard.is_holding


def test_a_slow_reply_starts_no_hold() -> None:
    guard = started()

    observe(guard, BASE + 100, 30_000, delay=29_900)

    assert not guard.is_holding
    assert guard.now(30_000) >= BASE + 30_000 * (1 - DRIFT)


def test_a_slow_reply_does_not_end_a_hold() -> None:
    guard = started()
    observe(guard, BASE + 100 + 5_000, 100)

    observe(guard, BASE + 200 + 5_000, 5_200, delay=5_000)

    assert guard.is_holding


def test_a_process_that_was_frozen_follows_the_time_that_has_passed() -> None:
    guard = started()

    observe(guard, BASE + 86_400_000, 86_400_000)

    assert not guard.is_holding


@pytest.mark.parametrize(
    ("server", "wall", "high", "trusted"),
    [
        pytest.param(BASE, BASE - LIMIT, None, True, id="the host's clock is the limit behind"),
        pytest.param(BASE, BASE - LIMIT - 1, None, False, id="the host's clock is further behind"),
        pytest.param(BASE, BASE - 50_000, BASE - LIMIT, True, id="the shard was already driven to this time"),
        pytest.param(BASE, BASE - 50_000, BASE - LIMIT - 1, False, id="the shard was not driven to this time"),
        pytest.param(BASE, BASE - 500, BASE - 86_400_000, True, id="no driver ran for a day"),
        pytest.param(BASE, BASE + 50_000, None, True, id="the server is behind the host"),
        pytest.param(BASE, BASE, BASE + 50_000, True, id="the server's clock was set back"),
    ],
)
def test_at_the_first_claim_the_hosts_clock_and_the_high_water_mark_are_compared(
    server: int, wall: float, high: int | None, trusted: bool
) -> None:
    guard = started(server=server, wall=wall, high=high)

    assert guard.is_holding == (not trusted)
    assert guard.now(0) == (BASE if trusted else max(wall, high or 0))


def test_the_reference_time_is_updated_only_every_ten_seconds() -> None:
    guard = started()
    observe(guard, BASE + 5_000 + 900, 5_000)

    observe(guard, BASE + ANCHOR_MS - 1 + 1_100, ANCHOR_MS - 1)
    assert guard.is_holding

    guard = started()
    observe(guard, BASE + ANCHOR_MS + 900, ANCHOR_MS)
    observe(guard, BASE + 2 * ANCHOR_MS + 1_800, 2 * ANCHOR_MS)
    assert not guard.is_holding
