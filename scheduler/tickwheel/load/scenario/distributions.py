"""Random durations: delays, run times, and times until a cancel. All in seconds.

In a scenario file, the value of such a field is a constant, or a table with one of these keys:

    "15m"                                               constant
    { uniform = ["1m", "10m"] }                         uniform between two durations
    { exponential = "30s" }                             exponential, with this mean
    { lognormal = { median = "2m", sigma = 0.8 } }      skewed to the right, like most run times
    { list = ["1s", "2s", "8s"] }                       one of the listed values, all equally likely
    { mix = [[0.9, "15m"], [0.1, { exponential = "1h" }]] }     one of several distributions, by weight
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.toml_fields import TomlTable, items, number, seconds
from tickwheel.model.validation import preview

KINDS = ("uniform", "exponential", "lognormal", "list", "mix")
_SIGMA_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of durations, in seconds. ``draw`` returns one duration."""

    mean: float
    draw: Callable[[Random], float]


def constant(value: float) -> Distribution:
    return Distribution(value, lambda random: value)


def uniform(low: float, high: float) -> Distribution:
    return Distribution((low + high) / 2, lambda random: random.uniform(low, high))


def exponential(mean: float) -> Distribution:
    return Distribution(mean, lambda random: random.expovariate(1) * mean)


def lognormal(median: float, sigma: float) -> Distribution:
    mean = median * math.exp(sigma**2 / 2)
    return Distribution(mean, lambda random: median * math.exp(random.gauss(0, sigma)))


def empirical(values: Sequence[float]) -> Distribution:
    return Distribution(sum(values) / len(values), lambda random: random.choice(values))


def mix(weights: Sequence[float], parts: Sequence[Distribution]) -> Distribution:
    mean = sum(weight * part.mean for weight, part in zip(weights, parts, strict=True)) / sum(weights)
    return Distribution(mean, lambda random: random.choices(parts, weights)[0].draw(random))


ZERO = constant(0.0)


def parse(label: str, value: object) -> Distribution:
    """Parse the distribution of a field. Raises InvalidArgument, which names the field."""
    if not isinstance(value, dict):
        return constant(seconds(label, value))
    table = TomlTable(label, value)
    if len(value) != 1 or next(iter(value)) not in KINDS:
        raise InvalidArgument(
            f"{label} must be a duration like '15m', or a table with one of {', '.join(KINDS)}, not {preview(value)}"
        )
    return _parse_table(table, next(iter(value)))


def _parse_lognormal(table: TomlTable) -> Distribution:
    return lognormal(seconds(table.path("median"), table.take("median")), table.number("sigma", 0, _SIGMA_MAX))


def _parse_table(table: TomlTable, kind: str) -> Distribution:
    label = table.path(kind)
    if kind == "lognormal":
        return table.table(kind).parse(_parse_lognormal)
    value = table.take(kind)
    if kind == "exponential":
        return exponential(seconds(label, value))
    if kind == "list":
        return empirical(tuple(seconds(f"{label}[{n}]", item) for n, item in enumerate(items(label, value), 1)))
    if kind == "uniform":
        ends = items(label, value, 2)
        low, high = (seconds(f"{label}[{n}]", item) for n, item in enumerate(ends[:2], 1))
        if len(ends) != 2 or low > high:
            raise InvalidArgument(f"{label} must be two durations, the shorter one first, not {preview(value)}")
        return uniform(low, high)
    weights, parts = [], []
    for n, item in enumerate(items(label, value), 1):
        pair = items(f"{label}[{n}]", item, 2)
        weights.append(number(f"{label}[{n}][1]", pair[0], 1e-9, 1e9))
        parts.append(parse(f"{label}[{n}][2]", pair[1]))
    return mix(tuple(weights), tuple(parts))
