"""A token bucket under a clock that the test sets."""

import pytest

from tickwheel.service.token_quota import TokenBucket

pytestmark = pytest.mark.unit


def test_a_burst_passes_at_once_and_later_calls_wait() -> None:
    bucket = TokenBucket(rate=10, burst=5, now=100.0)
    assert [bucket.take(1, 100.0) for _ in range(5)] == [0.0] * 5
    assert bucket.take(1, 100.0) > 0


def test_a_call_that_waits_for_the_reported_time_passes() -> None:
    bucket = TokenBucket(rate=10, burst=1, now=0.0)
    bucket.take(31, 0.0)
    seconds = bucket.take(1, 0.0)
    assert seconds == pytest.approx(3.0, abs=0.01)
    assert bucket.take(1, seconds / 2) > 0
    assert bucket.take(1, seconds + 0.001) == 0.0


def test_a_batch_larger_than_the_burst_passes_and_is_paid_afterwards() -> None:
    bucket = TokenBucket(rate=100, burst=100, now=0.0)
    assert bucket.take(1_000, 0.0) == 0.0
    assert bucket.take(1, 8.99) > 0
    assert bucket.take(1, 9.01) == 0.0


def test_a_refused_call_costs_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=1, now=0.0)
    bucket.take(2, 0.0)
    for _ in range(100):
        assert bucket.take(50, 0.5) > 0
    assert bucket.take(1, 1.1) == 0.0


def test_a_call_without_cost_always_passes() -> None:
    bucket = TokenBucket(rate=1, burst=1, now=0.0)
    bucket.take(1_000, 0.0)
    assert bucket.take(0, 0.0) == 0.0


def test_in_any_period_no_more_passes_than_the_burst_a_batch_and_the_rate() -> None:
    bucket = TokenBucket(rate=50, burst=20, now=0.0)
    through = sum(7 for n in range(10_000) if not bucket.take(7, n / 1_000))
    assert 50 * 10 <= through <= 20 + 7 + 50 * 10
