"""Which value a pair of metadata has: named ones by weight, or n of them, all alike (skew 0) or as Zipf has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.toml_fields import TomlTable, number
from tickwheel.model.validation import preview, text

VALUES_MAX = 1_000_000
_SKEW_MOST = 5.0


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one key, with the running sums of their weights."""

    key: str
    names: Sequence[str]
    sums: Sequence[float]
    skew: float | None = None
    """Where they are numbered ones: the n-th is as frequent as n to the power of minus this."""

    def draw(self, random: Random) -> str:
        return random.choices(self.names, cum_weights=self.sums)[0]

    def scaled(self, scale: float) -> "Values":
        """Of numbered values as many times more or fewer, so that one has about as many messages as before."""
        if self.skew is None:
            return self
        return numbered_values(self.key, max(1, round(len(self.names) * scale)), self.skew)


def numbered_values(key: str, count: int, skew: float) -> Values:
    """``count`` values, key-1 the most frequent."""
    names = [f"{key}-{n}" for n in range(1, count + 1)]
    return Values(key, names, list(accumulate(n**-skew for n in range(1, count + 1))), skew)


def parse_exclusive(table: TomlTable) -> Values:
    """``exclusive`` of a queue: { key = "project", values = 300, skew = 1.0 }."""
    key = _key(table.path("key"), table.text("key"))
    values = numbered_values(key, table.integer("values", 1, VALUES_MAX), table.number("skew", 0, _SKEW_MOST, 0.0))
    table.reject_unknown()
    return values


def parse_metadata(label: str, metadata: object) -> tuple[Values, ...]:
    """``metadata`` of a queue: key -> { value = weight }, or key -> { values = 300, skew = 1.0 }."""
    if not isinstance(metadata, dict):
        raise InvalidArgument(f"{label} must be a table, not {preview(metadata)}")
    parsed = []
    for key, weights in metadata.items():
        name = f"{label}.{_key(label, key)}"
        table = TomlTable(name, weights)
        if not weights:
            raise InvalidArgument(f"{name} has no values: write {{ value = weight }}, or {{ values = 300 }}")
        if "values" in table:
            parsed.append(
                numbered_values(key, table.integer("values", 1, VALUES_MAX), table.number("skew", 0, _SKEW_MOST, 0.0))
            )
            table.reject_unknown()
            continue
        for value in weights:
            text(f"a value of {name}", value, limits.PAIR_VALUE_BYTES)
        numbers = [number(f"{name}.{value}", weight, 0, 1e9) for value, weight in weights.items()]
        if not sum(numbers):
            raise InvalidArgument(f"{name}: a weight at least must be above 0, not {preview(weights)}")
        parsed.append(Values(key, list(weights), list(accumulate(numbers))))
    return tuple(parsed)


def _key(label: str, key: str) -> str:
    text(f"a key of {label}", key, limits.PAIR_KEY_BYTES, minimum=1)
    return key
