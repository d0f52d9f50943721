"""Reads TOML documents strictly: the caller takes each field by its name and type, and unknown fields are errors.

The text of an error contains the name of the file, the path of the field as in TOML, the value, and the allowed values.
"""

from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from tickwheel.errors import InvalidArgument
from tickwheel.model.durations import parse_duration
from tickwheel.model.validation import plain_name, preview, suggest

T = TypeVar("T")
_MISSING: Final = object()


class TomlTable:
    """A table of a document. Each field is taken once; `parse` raises an error for fields that remain."""

    def __init__(self, label: str, value: object) -> None:
        if not isinstance(value, dict):
            raise InvalidArgument(f"{label} must be a table, not {preview(value)}")
        self.label = label
        self._values = dict(value)
        self._known_names: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def path(self, name: str) -> str:
        """Return the path of a field, for error texts."""
        return f"{self.label}{'' if self.label.endswith(': ') else '.'}{name}"

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """Remove and return a value, unchecked. Raises InvalidArgument if the value is missing and has no default."""
        self._known_names.append(name)
        value = self._values.pop(name, default)
        if value is _MISSING:
            raise InvalidArgument(f"{self.path(name)} is missing")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.take(name, _MISSING if default is None else default)
        if not isinstance(value, str):
            raise InvalidArgument(f"{self.path(name)} must be a text, not {preview(value)}")
        return value

    def one_of(self, name: str, allowed: Collection[str], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise InvalidArgument(f"{self.path(name)} must be one of {', '.join(allowed)}, not {preview(value)}")
        return value

    def plain_name(self, name: str) -> str:
        """Take the name of a queue."""
        return plain_name(self.path(name), self.text(name))

    def number(self, name: str, minimum: float, maximum: float, default: float | None = None) -> float:
        return number(self.path(name), self.take(name, _MISSING if default is None else default), minimum, maximum)

    def integer(self, name: str, minimum: int, maximum: int, default: int | None = None) -> int:
        value = self.take(name, _MISSING if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise InvalidArgument(
                f"{self.path(name)} must be a whole number from {minimum:,} to {maximum:,}, not {preview(value)}"
            )
        return value

    def seconds(self, name: str, minimum: float, maximum: float, default: float | None = None) -> float:
        """Take a duration, written like 15m. Return its seconds."""
        value = self.take(name, _MISSING if default is None else None)
        if value is None and default is not None:
            return default
        return number(self.path(name), seconds(self.path(name), value), minimum, maximum, "seconds")

    def table(self, name: str) -> "TomlTable":
        """Take a nested table; empty if it is missing."""
        return TomlTable(self.path(name), self.take(name, {}))

    def tables(self, name: str) -> "list[TomlTable]":
        """Take an array of tables, [[name]]. In error texts, the tables are numbered from 1."""
        value = self.take(name, ())
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{self.path(name)} must be an array of tables, [[{name}]], not {preview(value)}")
        return [TomlTable(f"{self.path(name)}[{n}]", item) for n, item in enumerate(value, 1)]

    def parse(self, parser: "Callable[[TomlTable], T]") -> T:
        """Return the result of ``parser``. Raises InvalidArgument for fields that ``parser`` did not take."""
        parsed = parser(self)
        self.reject_unknown()
        return parsed

    def parse_table(self, name: str, parser: "Callable[[TomlTable], T]") -> T | None:
        """Parse a nested table; None if it is missing."""
        value = self.take(name, None)
        return None if value is None else TomlTable(self.path(name), value).parse(parser)

    def reject_unknown(self) -> None:
        """Raise InvalidArgument for fields that were not taken."""
        for name in self._values:
            known = sorted(set(self._known_names))
            raise InvalidArgument(
                f"{self.path(name)} is unknown{suggest(name, known)}; known fields are {', '.join(known)}"
                if self._known_names
                else f"{self.path(name)} is unknown"
            )


def number(label: str, value: object, minimum: float, maximum: float, unit: str = "") -> float:
    """Check a number and its bounds. Raises InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        kind = f"a number of {unit}" if unit else "a number"
        raise InvalidArgument(f"{label} must be {kind} from {minimum:,.10g} to {maximum:,.10g}, not {preview(value)}")
    return float(value)


def seconds(label: str, value: object) -> float:
    """Parse a duration, written like 15m, into seconds. Raises InvalidArgument."""
    try:
        return parse_duration(value).total_seconds()  # type: ignore[arg-type]  # rejects values that are not text
    except InvalidArgument as error:
        raise InvalidArgument(f"{label}: {error}") from error


def items(label: str, value: object, minimum: int = 1) -> list[Any]:
    """Check an array with at least ``minimum`` items. Raises InvalidArgument."""
    if not isinstance(value, list | tuple) or len(value) < minimum:
        raise InvalidArgument(f"{label} must be an array of {minimum} items or more, not {preview(value)}")
    return list(value)
