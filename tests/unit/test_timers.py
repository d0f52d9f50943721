"""Timers as bytes: packed and unpacked again, and bytes that are not timers."""

import pytest
from hypothesis import example, given, strategies as st

from tickwheel import limits
from tickwheel.storage.record import name
from tickwheel.storage.timer import (
    ENTRY_BYTES,
    ENTRY_TIMERS,
    CorruptTimers,
    Kind,
    Timer,
    iter_timers,
    pack,
    parse_entry,
    unpack,
)

pytestmark = pytest.mark.unit

timers = st.builds(
    Timer,
    time_ms=st.integers(0, 2**48 - 1),
    queue_number=st.integers(0, 2**16 - 1),
    generation=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(Kind),
    name=st.binary(max_size=300),
)


@given(st.lists(timers, max_size=5))
def test_packed_timers_are_unpacked_as_they_were(given_timers: list[Timer]) -> None:
    assert unpack(b"".join(map(pack, given_timers))) == given_timers


@given(st.lists(timers, max_size=3), st.binary(max_size=40))
@example([], b"\xff" * 14)
@example([], bytes(12))
@example([], bytes(14))
def test_all_other_bytes_are_corrupt(good: list[Timer], rest: bytes) -> None:
    chunk = b"".join(map(pack, good)) + rest
    try:
        read = unpack(chunk)
    except CorruptTimers:
        return
    assert b"".join(map(pack, read)) == chunk


@given(st.lists(timers, min_size=1, max_size=3), st.data())
def test_a_chunk_that_is_cut_off_is_corrupt(good: list[Timer], data: st.DataObject) -> None:
    packed = [pack(timer) for timer in good]
    chunk = b"".join(packed)
    cut = data.draw(st.integers(len(chunk) - len(packed[-1]) + 1, len(chunk) - 1))
    with pytest.raises(CorruptTimers):
        list(iter_timers(chunk[:cut]))


def test_the_largest_entry_that_a_script_adds_is_less_than_half_of_the_limits() -> None:
    messages = max(limits.CALL_MESSAGES, limits.DEQUEUE_MESSAGES)
    largest = name(b"i" * limits.ID_BYTES, b"v" * limits.PAIR_VALUE_BYTES)
    entry = pack(Timer(2**48 - 1, 65_535, 2**32 - 1, Kind.RETIRE, largest)) * messages
    assert len(parse_entry(entry)) == messages < ENTRY_TIMERS / 2
    assert len(entry) < ENTRY_BYTES / 2


def test_an_entry_beyond_a_limit_is_corrupt() -> None:
    timer = pack(Timer(1, 1, 1, Kind.PROMOTE, b"m"))
    assert len(parse_entry(timer * ENTRY_TIMERS)) == ENTRY_TIMERS
    with pytest.raises(CorruptTimers, match="more than 4000 timers"):
        parse_entry(timer * (ENTRY_TIMERS + 1))
    with pytest.raises(CorruptTimers, match="the maximum is"):
        parse_entry(bytes(ENTRY_BYTES + 1))
