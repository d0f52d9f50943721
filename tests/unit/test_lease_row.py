"""The rows and the assignment of an election by lease, as bytes."""

import struct

import pytest
from hypothesis import given, strategies as st

from tickwheel import limits
from tickwheel.election.lease_options import SESSION_TIMEOUTS
from tickwheel.election.lease_row import LEASE_MS_MAX, VERSION, NewerRow, Row
from tickwheel.election.stored_assignment import NONE_STORED, StoredAssignment

pytestmark = pytest.mark.unit

SHARDS = st.integers(1, 300)
EMPTY: frozenset[int] = frozenset()


@st.composite
def rows(draw: st.DrawFn) -> tuple[Row, int]:
    shards = draw(SHARDS)
    numbers = st.frozensets(st.integers(0, shards - 1))
    wants, drives, avoids = (draw(numbers) for _ in range(3))
    rank, beat, lease_ms = draw(st.integers(0, 1)), draw(st.integers(0, 2**47)), draw(st.integers(0, LEASE_MS_MAX))
    row = Row(rank, beat, wants, drives, avoids, draw(st.text()), lease_ms)
    return row, shards


@given(rows())
def test_a_row_is_read_as_it_was_written(example: tuple[Row, int]) -> None:
    row, shards = example
    read = Row.unpack(row.pack(shards))
    assert (read.rank, read.beat, read.wants, read.drives, read.avoids, read.lease_ms) == (
        *(row.rank, row.beat, row.wants, row.drives, row.avoids, row.lease_ms),
    )
    name = row.name.encode(errors="replace").decode()
    assert name.startswith(read.name.rstrip("\ufffd"))


@given(st.binary())
def test_bytes_of_another_program_are_no_row(data: bytes) -> None:
    try:
        row = Row.unpack(data)
    except ValueError:
        return
    assert data[0] == VERSION
    assert row.beat >= 0


def test_a_row_for_more_shards_than_a_namespace_can_have_is_refused() -> None:
    assert Row.unpack(row_of_size(limits.SHARDS_MAX // 8)).drives == frozenset(range(limits.SHARDS_MAX))
    with pytest.raises(ValueError, match="are no row"):
        Row.unpack(row_of_size(limits.SHARDS_MAX // 8 + 1))


def row_of_size(size: int) -> bytes:
    """Return a row whose bitmaps have ``size`` bytes and name every shard."""
    return struct.pack(">BBQH", VERSION, 0, 1, size) + b"\xff" * 3 * size + b"host:1"


def test_earlier_versions_read_the_lease_as_a_part_of_a_beat_that_grows() -> None:
    # Version, rank, beat, size of a bitmap.
    beats = [struct.unpack_from(">BBQH", row_with(beat, 60_000).pack(8))[2] for beat in (1, 2)]
    assert beats[1] == beats[0] + 1
    assert row_with(1, 60_000).pack(8)[-6:] == b"host:1"


def test_the_row_of_an_earlier_version_has_no_lease() -> None:
    packed = struct.pack(">BBQH", VERSION, 0, 7, 1) + bytes(3) + b"host:1"
    assert Row.unpack(packed) == row_with(7, 0)


def test_a_lease_that_no_option_allows_is_limited() -> None:
    packed = struct.pack(">BBQH", VERSION, 0, 2**64 - 1, 1) + bytes(3) + b"host:1"
    assert Row.unpack(packed).lease_ms == LEASE_MS_MAX
    assert SESSION_TIMEOUTS[1].total_seconds() * 1000 == LEASE_MS_MAX


def row_with(beat: int, lease_ms: int) -> Row:
    return Row(0, beat, EMPTY, EMPTY, EMPTY, "host:1", lease_ms)


def test_the_row_of_a_later_version_is_recognized() -> None:
    with pytest.raises(NewerRow):
        Row.unpack(bytes([VERSION + 1]))


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        (None, Row(0, 2, EMPTY, EMPTY, EMPTY, ""), True),
        (Row(0, 1, EMPTY, EMPTY, EMPTY, ""), Row(0, 2, EMPTY, EMPTY, EMPTY, ""), False),
        (Row(0, 1, EMPTY, EMPTY, EMPTY, ""), Row(0, 2, frozenset({1}), EMPTY, EMPTY, ""), True),
        (Row(0, 1, frozenset({1}), EMPTY, EMPTY, ""), Row(0, 2, EMPTY, frozenset({1}), EMPTY, ""), False),
        (Row(0, 1, EMPTY, frozenset({1}), EMPTY, ""), Row(0, 2, EMPTY, EMPTY, EMPTY, ""), True),
        (Row(0, 1, EMPTY, EMPTY, EMPTY, ""), Row(0, 2, EMPTY, EMPTY, frozenset({1}), ""), True),
    ],
    ids=["first row", "only a beat", "wants a shard", "drives a shard", "has released a shard", "avoids a shard"],
)
def test_a_row_is_news_if_others_must_act(before: Row | None, after: Row, is_news: bool) -> None:
    assert after.is_news(before) is is_news


@given(st.lists(st.none() | st.sampled_from(["a", "b", "c"]), max_size=20), st.integers(0, 2**52))
def test_a_stored_assignment_is_read_as_it_was_written(members: list[str | None], version: int) -> None:
    stored = StoredAssignment.make(version, members, lambda: 0.5)
    packed = stored.packed()
    assert StoredAssignment.parse(packed[:16], packed[16:]) == stored
    assert len(stored.of(25)) == 25


@given(st.binary(max_size=20), st.binary())
def test_bytes_of_another_program_are_an_empty_assignment(header: bytes, rest: bytes) -> None:
    stored = StoredAssignment.parse(header, rest)
    assert stored.header == header
    assert stored.version >= 0


def test_nothing_stored_is_an_empty_assignment() -> None:
    assert StoredAssignment.parse(b"", b"") == NONE_STORED
    assert NONE_STORED.of(2) == [None, None]
