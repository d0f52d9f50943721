"""Arrival rate of messages over the hours of a day. The rate is linear between points; a burst replaces the rate.

The day repeats. Arrivals are a Poisson process with this rate, which models many independent producers.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.toml_fields import TomlTable, items, number

HOUR_S, DAY_S = 3_600.0, 86_400.0
RATE_MAX = 1e6
# Number of samples for the mean over a period. A prime number, so that the samples are not in step with bursts.
_STEPS = 10_007


@dataclass(frozen=True, slots=True)
class Burst:
    """A periodic change of the rate: every ``every_s``, the rate is ``rate`` for ``length_s``."""

    every_s: float
    length_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """``times_s`` are times of the day in ascending order; ``rates`` are messages per second."""

    times_s: tuple[float, ...]
    rates: tuple[float, ...]
    burst: Burst | None = None

    @property
    def max_rate(self) -> float:
        """Return the highest rate of the day."""
        return max(*self.rates, 0.0 if self.burst is None else self.burst.rate)

    def rate_at(self, time_s: float) -> float:
        """Return the rate at a time."""
        if self.burst is not None and time_s % self.burst.every_s < self.burst.length_s:
            return self.burst.rate
        return self._steady(time_s % DAY_S)

    def count(self, since_s: float, until_s: float) -> float:
        """Return the expected number of arrivals in a period."""
        step = (until_s - since_s) / _STEPS
        return sum(self.rate_at(since_s + (n + 0.5) * step) for n in range(_STEPS)) * step

    def draw(self, since_s: float, until_s: float, random: Random) -> Iterator[float]:
        """Yield the times of arrivals in order.

        Times are drawn at the highest rate. A time is kept with the probability rate / highest rate (thinning).
        """
        max_rate, time_s = self.max_rate, since_s
        while max_rate and (time_s := time_s + random.expovariate(max_rate)) < until_s:
            if random.random() * max_rate <= self.rate_at(time_s):
                yield time_s

    def scaled(self, scale: float) -> "ArrivalRate":
        """Return the same day with more or fewer messages."""
        burst = None if self.burst is None else replace(self.burst, rate=self.burst.rate * scale)
        return ArrivalRate(self.times_s, tuple(rate * scale for rate in self.rates), burst)

    def _steady(self, time_s: float) -> float:
        # The line continues from the last point of the day to the first point of the next day.
        last = len(self.times_s) - 1
        n = bisect_right(self.times_s, time_s) - 1
        begin, end = (n, n + 1) if 0 <= n < last else (last, 0)
        rate, next_rate = self.rates[begin], self.rates[end]
        if rate == next_rate:
            return rate
        length = (self.times_s[end] - self.times_s[begin]) % DAY_S
        return rate + (next_rate - rate) * ((time_s - self.times_s[begin]) % DAY_S) / length


def parse(table: TomlTable) -> ArrivalRate:
    """Parse ``arrivals`` (a rate, or a list of points [hour, rate]) and ``bursts`` of a queue."""
    label, value = table.path("arrivals"), table.take("arrivals")
    if isinstance(value, int | float):
        times, rates = [0.0], [number(label, value, 0, RATE_MAX)]
    else:
        points = [items(f"{label}[{n}]", item, 2) for n, item in enumerate(items(label, value), 1)]
        times = [number(f"{label}[{n}][1]", item[0], 0, 24) * HOUR_S for n, item in enumerate(points, 1)]
        rates = [number(f"{label}[{n}][2]", item[1], 0, RATE_MAX) for n, item in enumerate(points, 1)]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise InvalidArgument(f"{label} must be points [hour, messages per second] in ascending order, not {value}")
    return ArrivalRate(tuple(times), tuple(rates), table.parse_table("bursts", _burst))


def _burst(table: TomlTable) -> Burst:
    every_s = table.seconds("every", 1, DAY_S)
    return Burst(every_s, table.seconds("length", 0.001, every_s), table.number("rate", 0, RATE_MAX))
