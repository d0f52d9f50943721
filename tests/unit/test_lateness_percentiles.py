"""A percentile of lateness is an estimate: it is interpolated within the bucket that contains the percentile."""

import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest

from tickwheel.cli.output import format_lateness
from tickwheel.model.results import Lateness

pytestmark = pytest.mark.unit


def lateness_of(values: Iterable[int]) -> Lateness:
    """Return the histogram of these values, in ms, as a shard stores it."""
    return Lateness(dict(Counter(2 ** value.bit_length() for value in values)), {}, 0)


def test_without_messages_a_percentile_is_0() -> None:
    assert Lateness({}, {}, 0).percentile(0.99) == 0


@pytest.mark.parametrize("late_ms", [0, 1])
def test_below_2_ms_the_percentile_is_exact(late_ms: int) -> None:
    assert [lateness_of([late_ms] * 3).percentile(share) for share in (0, 0.5, 1)] == [late_ms] * 3


def test_a_message_that_was_20_seconds_late_is_not_reported_as_32_seconds_late() -> None:
    # 20,000 ms are in the bucket from 16,384 to 32,767 ms. Half of its width on a logarithmic scale is the factor √2.
    late = lateness_of([20_000])
    assert late.percentile(0.5) == 23_170
    assert late.percentile(0) == 16_384
    assert late.percentile(1) == 32_767


def test_the_estimate_grows_with_the_share_within_a_bucket() -> None:
    # The bucket from 64 to 127 ms has the shares from 0.5 to 0.9.
    late = Lateness({8: 50, 128: 40, 1024: 10}, {}, 0)
    assert [late.percentile(share) for share in (0.5, 0.51, 0.7, 0.9, 0.91)] == [7, 65, 90, 127, 549]


@pytest.mark.parametrize("seed", range(20))
def test_the_estimate_is_within_a_factor_of_two_of_the_exact_percentile(seed: int) -> None:
    rng = random.Random(seed)
    values = sorted(int(rng.lognormvariate(4, 2)) for _ in range(rng.randrange(1, 500)))
    late = lateness_of(values)
    for share in (0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
        exact, estimate = values[math.ceil(share * len(values)) - 1], late.percentile(share)
        assert estimate.bit_length() == exact.bit_length()
        assert estimate == exact or exact / 2 < estimate < 2 * exact


def test_a_lateness_below_1_ms_is_not_printed_as_zero() -> None:
    assert format_lateness(lateness_of([0, 0, 2_000])) == ["< 1 ms", "2,005 ms"]
    assert format_lateness(Lateness({}, {}, 0)) == ["", ""]
