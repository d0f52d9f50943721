"""Waits after failures in a row."""

import pytest

from tickwheel.runtime.backoff import LONGEST_S, SHORTEST_S, Backoff

pytestmark = pytest.mark.unit


def test_waits_double_up_to_the_longest_and_are_at_least_half_of_that() -> None:
    backoff, wait = Backoff(), SHORTEST_S
    for _ in range(10):
        assert wait / 2 <= backoff.next() <= wait
        wait = min(2 * wait, LONGEST_S)
    assert wait == LONGEST_S


def test_after_a_success_the_first_wait_comes_again() -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.next()
    backoff.reset()
    assert SHORTEST_S / 2 <= backoff.next() <= SHORTEST_S
