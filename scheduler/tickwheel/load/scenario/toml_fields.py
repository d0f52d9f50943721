"""Reads a TOML document strictly: every field by name and kind, and what nobody asked for is refused.

Errors name the file, the path of the field as TOML writes it, the value, and what is allowed.
"""

from collections.abc import Collection
from typing import Any, Final

from tickwheel.errors import InvalidArgument
from tickwheel.model.durations import duration
from tickwheel.model.validation import plain_name, shown

_MISSING: Final = object()


class Table:
    """A table of a document. Each field is taken once; `done` refuses what is left."""

    def __init__(self, where: str, given: object) -> None:
        if not isinstance(given, dict):
            raise InvalidArgument(f"{where} must be a table, not {shown(given)}")
        self.where = where
        self._given = dict(given)
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def path(self, name: str) -> str:
        """How an error names a field."""
        return f"{self.where}{'' if self.where.endswith(': ') else '.'}{name}"

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """The value as TOML has it. Without a default the field must be there."""
        self._asked.append(name)
        value = self._given.pop(name, default)
        if value is _MISSING:
            raise InvalidArgument(f"{self.path(name)} is missing")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.take(name, _MISSING if default is None else default)
        if not isinstance(value, str):
            raise InvalidArgument(f"{self.path(name)} must be a text, not {shown(value)}")
        return value

    def one_of(self, name: str, allowed: Collection[str], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise InvalidArgument(f"{self.path(name)} must be one of {', '.join(allowed)}, not {shown(value)}")
        return value

    def plain_name(self, name: str) -> str:
        """The name of a queue."""
        return plain_name(self.path(name), self.text(name))

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        return number(self.path(name), self.take(name, _MISSING if default is None else default), least, most)

    def whole(self, name: str, least: int, most: int, default: int | None = None) -> int:
        value = self.take(name, _MISSING if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidArgument(
                f"{self.path(name)} must be a whole number from {least:,} to {most:,}, not {shown(value)}"
            )
        return value

    def seconds(self, name: str, least: float, most: float, default: float | None = None) -> float:
        """A duration, written like 15m."""
        value = self.take(name, _MISSING if default is None else None)
        if value is None and default is not None:
            return default
        return number(self.path(name), seconds(self.path(name), value), least, most, "seconds")

    def table(self, name: str) -> "Table | None":
        """A table within this one, None where there is none."""
        value = self.take(name, None)
        return None if value is None else Table(self.path(name), value)

    def tables(self, name: str) -> "list[Table]":
        """An array of tables, [[name]]; numbered from 1 in errors."""
        value = self.take(name, ())
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{self.path(name)} must be an array of tables, [[{name}]], not {shown(value)}")
        return [Table(f"{self.path(name)}[{n}]", each) for n, each in enumerate(value, 1)]

    def done(self) -> None:
        """Raises InvalidArgument where there are fields that nobody knows."""
        for name in self._given:
            raise InvalidArgument(
                f"{self.path(name)} is unknown; there are {', '.join(sorted(set(self._asked)))}"
                if self._asked
                else f"{self.path(name)} is unknown"
            )


def number(what: str, value: object, least: float, most: float, unit: str = "") -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        kind = f"a number of {unit}" if unit else "a number"
        raise InvalidArgument(f"{what} must be {kind} from {least:,.10g} to {most:,.10g}, not {shown(value)}")
    return float(value)


def seconds(what: str, value: object) -> float:
    """A duration, written like 15m, in seconds."""
    try:
        return duration(value).total_seconds()  # type: ignore[arg-type]  # it refuses what is no text
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from error


def items(what: str, value: object, least: int = 1) -> list[Any]:
    """An array with at least so many items."""
    if not isinstance(value, list | tuple) or len(value) < least:
        raise InvalidArgument(f"{what} must be an array of {least} items or more, not {shown(value)}")
    return list(value)
