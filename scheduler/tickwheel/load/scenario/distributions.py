"""Random durations: delays, run times, and times until a cancel. All in seconds.

A scenario contains a duration, or a table with one of these:

    "15m"                                               constant
    { uniform = ["1m", "10m"] }                         uniform between two durations
    { exponential = "30s" }                             exponential, with this mean
    { lognormal = { median = "2m", sigma = 0.8 } }      skewed to the right, like most run times
    { list = ["1s", "2s", "8s"] }                       one of the listed values, all equally likely
    { mix = [[0.9, "15m"], [0.1, { exponential = "1h" }]] }     one of several distributions, by weight
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.toml_fields import TomlTable, items, number, seconds

KINDS = ("uniform", "exponential", "lognormal", "list", "mix")
_SIGMA_MAX = 5.0


class Distribution(Protocol):
    """A distribution of durations, in seconds."""

    @property
    def mean(self) -> float: ...

    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    mean: float

    def draw(self, random: Random) -> float:
        return self.mean


@dataclass(frozen=True, slots=True)
class Uniform:
    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1) * self.mean


@dataclass(frozen=True, slots=True)
class Lognormal:
    median: float
    sigma: float

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def draw(self, random: Random) -> float:
        return self.median * math.exp(random.gauss(0, self.sigma))


@dataclass(frozen=True, slots=True)
class Empirical:
    values: Sequence[float]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    def draw(self, random: Random) -> float:
        return random.choice(self.values)


@dataclass(frozen=True, slots=True)
class Mix:
    weights: Sequence[float]
    parts: Sequence[Distribution]

    @property
    def mean(self) -> float:
        return sum(w * part.mean for w, part in zip(self.weights, self.parts, strict=True)) / sum(self.weights)

    def draw(self, random: Random) -> float:
        return random.choices(self.parts, self.weights)[0].draw(random)


ZERO = Constant(0.0)


def parse(label: str, value: object) -> Distribution:
    """Parse the distribution of a field. Raises InvalidArgument, which names the field."""
    if not isinstance(value, dict):
        return Constant(seconds(label, value))
    table = TomlTable(label, value)
    if len(value) != 1 or next(iter(value)) not in KINDS:
        raise InvalidArgument(
            f"{label} must be a duration like '15m', or a table with one of {', '.join(KINDS)}, not {value}"
        )
    return _parse_table(table, next(iter(value)))


def _lognormal(table: TomlTable) -> Lognormal:
    return Lognormal(seconds(table.path("median"), table.take("median")), table.number("sigma", 0, _SIGMA_MAX))


def _parse_table(table: TomlTable, kind: str) -> Distribution:
    label = table.path(kind)
    if kind == "lognormal":
        return table.table(kind).parse(_lognormal)
    value = table.take(kind)
    if kind == "exponential":
        return Exponential(seconds(label, value))
    if kind == "list":
        return Empirical(tuple(seconds(f"{label}[{n}]", item) for n, item in enumerate(items(label, value), 1)))
    if kind == "uniform":
        ends = items(label, value, 2)
        low, high = (seconds(f"{label}[{n}]", item) for n, item in enumerate(ends[:2], 1))
        if len(ends) != 2 or low > high:
            raise InvalidArgument(f"{label} must be two durations, the shorter one first, not {value}")
        return Uniform(low, high)
    weights, parts = [], []
    for n, item in enumerate(items(label, value), 1):
        pair = items(f"{label}[{n}]", item, 2)
        weights.append(number(f"{label}[{n}][1]", pair[0], 1e-9, 1e9))
        parts.append(parse(f"{label}[{n}][2]", pair[1]))
    return Mix(tuple(weights), tuple(parts))
