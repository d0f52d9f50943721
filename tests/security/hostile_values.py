"""Values that are invalid for most arguments. Each test passes all of them to each call."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType


class Lost(tzinfo):
    """A time zone without an offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None) -> str | None:
        return None


class Number(IntEnum):
    """Integers whose text is not a number."""

    FOUR = 4
    TOO_MANY = 2**40


class Colour(str, Enum):  # noqa: UP042 (a StrEnum prints as it is)
    """Strings whose ``str()`` differs from their value."""

    RED = "red"


class Text(str):
    """A string whose `encode` returns other bytes."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"}{\0"


class Unprintable:
    """A value whose text raises an error."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


def nested(levels: int) -> list[object]:
    """Return an empty list in as many lists."""
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


class Pairs(Mapping[str, str]):
    """A mapping with a wrong length that compares equal to everything."""

    def __init__(self, pairs: dict[str, str], length: int) -> None:
        self._pairs, self._length = pairs, length

    def __getitem__(self, key: str) -> str:
        return self._pairs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


NOW = datetime.now(UTC)
TEXTS = [
    "", "x", "x" * 64, "x" * 65, "x" * 128, "x" * 129, "é" * 64, "é" * 65, "x" * 40_000, "{0}", "a{b}c",
    "tw:{9}:messages", "line\nbreak", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "nul\0nul", "\0", "\ud800", "a\udcff",
    "\U0010ffff", "..", "../x", "*", "[a-z]?", "a:b", "a:1", "a:99999999999999999",
    "a:999999999999999", "a:1000000000000000", "a:-1", "a:٣", "1", "true", "None",
    " x ", "%s", "\x7f", "\x1b[31m",
    Text("text"), Colour.RED,
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 1_000, 1_001, 2**31, 2**32, 2**52, 2**53, 2**63, 2**64, -(2**63), 10**40, 10**5_000,
    1.0, 1.5, -0.0, float("nan"), float("inf"), float("-inf"),
    Decimal("1"), Decimal("NaN"), 1j, Number.FOUR, Number.TOO_MANY,
]  # fmt: skip
TIMES = [
    datetime(2030, 1, 1), datetime.min, datetime.max, datetime(2030, 1, 1, tzinfo=Lost()), date(2030, 1, 1),  # noqa: DTZ001, DTZ901
    NOW, NOW + timedelta(days=1), NOW - timedelta(days=1), NOW + timedelta(days=365 * 5 - 1),
    NOW + timedelta(days=365 * 5 + 1), datetime(1969, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
    timedelta(0), timedelta(microseconds=1), timedelta(microseconds=-1), timedelta(milliseconds=1),
    timedelta(seconds=1), timedelta(seconds=-1), timedelta(hours=12), timedelta(hours=12, microseconds=1),
    timedelta(days=365 * 5), timedelta(days=365 * 5, milliseconds=1), timedelta(milliseconds=2**52),
    timedelta(milliseconds=-(2**52)), timedelta.max, timedelta.min,
]  # fmt: skip
PAIRS = [
    {}, {"a": "b"}, {"a": 1}, {1: "a"}, {"": "x"}, {"k" * 64: "v" * 256}, {"k" * 65: "v"}, {"k": "v" * 257}, {"k": ""},
    {"k": None}, {"k": "\ud800"}, {"\ud800": "v"}, {"k\0k": "v\0v"}, {"{": "}"}, {"k\nk": "v\nv"}, {"k": b"v"},
    {f"k{n}": "v" for n in range(16)}, {f"k{n}": "v" for n in range(17)}, {(): ""},
    Pairs({"a": "b"}, 0), Pairs({"a": "b"}, 17), Pairs({f"k{n}": "v" for n in range(17)}, 1),
    MappingProxyType({"a": "b"}), {"a": Text("b")}, {Text("a"): "b"}, {Colour.RED: Colour.RED},
]  # fmt: skip
REST = [
    None, True, False, b"", b"bytes", b"\xff\xfe", b"x" * (32 * 1024), b"x" * (32 * 1024 + 1), bytearray(b"x"),
    memoryview(b"x"), memoryview(b"xxxx")[::2], [], [1], ["a"], ["a", "a"], ["\ud800"], [None], (), ("a",), set(),
    {"a"}, frozenset("a"), range(3), iter(["a"]), object(), type, len, NotImplemented, ..., Path("x"), ValueError("x"),
    Unprintable(), nested(5_000),
]  # fmt: skip
VALUES: list[object] = [*TEXTS, *NUMBERS, *TIMES, *PAIRS, *REST]
