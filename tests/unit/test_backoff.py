"""Waits after consecutive failures."""

from itertools import pairwise

import pytest

from tickwheel.runtime.backoff import Backoff, equal_jitter, exponential, full_jitter

pytestmark = pytest.mark.unit


def test_waits_double_up_to_the_longest_and_last_at_least_half() -> None:
    backoff = Backoff()
    wait = backoff.first
    for _ in range(10):
        assert wait / 2 <= backoff.next() <= wait
        wait = min(2 * wait, backoff.longest)
    assert wait == backoff.longest


def test_after_a_success_the_first_wait_is_used_again() -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.next()
    backoff.reset()
    assert backoff.first / 2 <= backoff.next() <= backoff.first


def test_the_upper_bound_doubles_as_an_integer_for_any_number_of_failures() -> None:
    bounds = [exponential(3, 10**12, failures) for failures in range(1, 100)]
    assert bounds[:3] == [3, 6, 12]
    assert all(isinstance(bound, int) and bound <= later for bound, later in pairwise(bounds))
    assert exponential(0.1, 10.0, 5_000) == 10.0
    assert exponential(0, 10, 3) == 0


def test_full_jitter_is_a_random_part_of_the_upper_bound() -> None:
    assert full_jitter(8.0, lambda: 0.25) == 2.0
    assert all(0 <= full_jitter(8.0) <= 8.0 for _ in range(100))


def test_equal_jitter_is_at_least_half_of_the_upper_bound() -> None:
    assert equal_jitter(8.0, lambda: 0.25) == 5.0
    assert all(4.0 <= equal_jitter(8.0) <= 8.0 for _ in range(100))
