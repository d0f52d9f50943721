"""Random metadata values: values that the scenario names, with weights, or numbered values (``KEY-1``, ``KEY-2``, …).

Numbered values are equally likely if their skew is 0. Otherwise, their frequencies follow Zipf's law.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.toml_fields import TomlTable, number
from tickwheel.model.validation import preview, text

VALUES_MAX = 1_000_000
_SKEW_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one key, with the running sums of their weights."""

    key: str
    names: Sequence[str]
    sums: Sequence[float]
    skew: float | None = None
    """For numbered values: the frequency of value n is proportional to n to the power of -skew."""

    def draw(self, random: Random) -> str:
        return random.choices(self.names, cum_weights=self.sums)[0]

    def scaled(self, scale: float) -> "Values":
        """Scale the count of the values, so that each value keeps about the same number of messages.

        Only numbered values are scaled. Values that are listed in the scenario do not change.
        """
        if self.skew is None:
            return self
        return numbered_values(self.key, max(1, round(len(self.names) * scale)), self.skew)


def numbered_values(key: str, count: int, skew: float) -> Values:
    """Return ``count`` values: ``key`` with the numbers from 1 on, the most frequent value first."""
    names = [f"{key}-{n}" for n in range(1, count + 1)]
    return Values(key, names, list(accumulate(n**-skew for n in range(1, count + 1))), skew)


def parse_exclusive(table: TomlTable) -> Values:
    """Parse ``exclusive`` of a queue: { key = "project", values = 300, skew = 1.0 }."""
    return _numbered_values(table, _key(table.path("key"), table.text("key")))


def parse_metadata(label: str, metadata: object) -> tuple[Values, ...]:
    """Parse ``metadata`` of a queue: key -> { value = weight }, or key -> { values = 300, skew = 1.0 }."""
    if not isinstance(metadata, dict):
        raise InvalidArgument(f"{label} must be a table, not {preview(metadata)}")
    parsed = []
    for key, weights in metadata.items():
        name = f"{label}.{_key(label, key)}"
        table = TomlTable(name, weights)
        if not weights:
            raise InvalidArgument(f"{name} has no values: write {{ value = weight }}, or {{ values = 300 }}")
        if "values" in table:
            parsed.append(table.parse(partial(_numbered_values, key=key)))
            continue
        for value in weights:
            text(f"a value of {name}", value, limits.PAIR_VALUE_BYTES)
        numbers = [number(f"{name}.{value}", weight, 0, 1e9) for value, weight in weights.items()]
        if not sum(numbers):
            raise InvalidArgument(f"{name}: at least one weight must be above 0, not {preview(weights)}")
        parsed.append(Values(key, list(weights), list(accumulate(numbers))))
    return tuple(parsed)


def _numbered_values(table: TomlTable, key: str) -> Values:
    return numbered_values(key, table.integer("values", 1, VALUES_MAX), table.number("skew", 0, _SKEW_MAX, 0.0))


def _key(label: str, key: str) -> str:
    text(f"a key of {label}", key, limits.PAIR_KEY_BYTES, minimum=1)
    return key
