"""Waits after consecutive failures."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tickwheel import limits
from tickwheel.model.validation import as_timedelta
from tickwheel.runtime.backoff import Backoff, equal_jitter, exponential, full_jitter
from tickwheel.tasks import Retry

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"


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


def longest_duration(retry: Retry, attempts: int) -> timedelta:
    """Return the sum of all waits if each is as long as possible. With equal jitter, the shortest sum is half of it."""
    first, most = as_timedelta(retry.first), as_timedelta(retry.most)
    return sum((min(most, first * 2**n) for n in range(attempts - 1)), timedelta())


def test_the_pages_name_the_time_that_the_attempts_of_a_message_take() -> None:
    guide, workers = (" ".join((DOCS / name).read_text().split()) for name in ("guide.md", "workers.md"))
    by_default = longest_duration(Retry(), limits.MAX_ATTEMPTS).total_seconds()
    assert as_timedelta(Retry().first).total_seconds() == limits.BACKOFF_MS / 1_000
    for page in (guide, workers):
        assert f"the five attempts of a message take {by_default / 2:g} to {by_default:g} s" in page
    minutes = longest_duration(Retry(first=10), 10).total_seconds() / 60
    text = f"`max_attempts=10, retry=Retry(first=10)`, the attempts take {minutes / 2:.0f} to {minutes:.0f} min"
    assert text in workers
