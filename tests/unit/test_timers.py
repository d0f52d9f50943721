"""Timers as bytes: packed and unpacked again, and bytes that are not timers."""

import pytest
from hypothesis import example, given, strategies as st

from tickwheel.storage.timer import CorruptTimers, Kind, Timer, iter_timers, pack, unpack

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
