"""The timers that an event process holds in memory, and the timers among them that are still open."""

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from tickwheel.driver.loaded_timers import LoadedTimers
from tickwheel.driver.near_timers import NearTimers
from tickwheel.storage.timer import Kind, Timer, pack, unpack

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000


def timer(time_ms: int, queue_number: int = 1, name: str = "m", kind: Kind = Kind.PROMOTE) -> bytes:
    return pack(Timer(time_ms, queue_number, 7, kind, name.encode()))


def near_timers(timers: Iterable[bytes], now_ms: int = NOW) -> NearTimers:
    near = NearTimers(now_ms)
    for packed in timers:
        near.add(unpack(packed)[0].time_ms, packed)
    return near


def take_all(near: NearTimers, now_ms: int, limit: int = 1_000) -> list[bytes]:
    taken = []
    while batch := near.take(now_ms, lambda _: limit):
        taken += batch[1]
    return taken


@given(st.lists(st.integers(-5_000, 9_000), max_size=60), st.lists(st.integers(0, 2_000), max_size=8))
def test_only_due_timers_are_taken_in_the_order_of_time(times: list[int], steps: list[int]) -> None:
    near, now = near_timers(timer(NOW + time, name=f"m{n}") for n, time in enumerate(times)), NOW
    expected = sorted((NOW + time, f"m{n}") for n, time in enumerate(times))

    for step in [*steps, 10_000]:
        now += step
        taken = [(entry.time_ms, entry.name.decode()) for entry in unpack(b"".join(take_all(near, now)))]
        assert sorted(taken) == [one for one in expected if one[0] <= now]
        future = [max(one[0], NOW) for one in taken]
        assert future == sorted(future)
        expected = [one for one in expected if one[0] > now]
        assert near.next_expiry() == (expected[0][0] if expected else None)
        assert near.count == len(expected)


def test_a_batch_has_timers_of_one_queue_and_the_queues_alternate() -> None:
    near = near_timers(timer(NOW, queue, f"m{n}") for queue in (1, 2) for n in range(5))

    batches = []
    while batch := near.take(NOW, lambda _: 3):
        batches.append((batch[0], len(batch[1])))

    assert batches == [(1, 3), (2, 3), (1, 2), (2, 2)]


def test_timers_that_are_returned_come_first_again_in_their_order() -> None:
    near = near_timers(timer(NOW, name=f"m{n}") for n in range(6))
    _, taken = near.take(NOW, lambda _: 4) or (0, [])

    near.put_back(1, taken[1:])

    assert near.count == 5
    assert [one.name for one in unpack(b"".join(take_all(near, NOW)))] == [b"m1", b"m2", b"m3", b"m4", b"m5"]


def test_returning_nothing_leaves_nothing_to_take() -> None:
    near = NearTimers(NOW)

    near.put_back(1, [])

    assert near.take(NOW, lambda _: 10) is None


def test_after_the_clock_stepped_back_the_rest_waits_for_its_time() -> None:
    near = near_timers([timer(NOW + 5_000), timer(NOW + 8_000)])
    assert len(take_all(near, NOW + 6_000)) == 1

    near.add(NOW + 1_000, timer(NOW + 1_000))
    assert take_all(near, NOW - 3_600_000) == []
    assert near.next_expiry() == NOW + 1_000
    assert len(take_all(near, NOW + 999)) == 0
    assert len(take_all(near, NOW + 1_000)) == 1
    assert len(take_all(near, NOW + 8_000)) == 1


def test_a_hundred_thousand_timers_of_one_tick_are_taken_in_portions() -> None:
    near = near_timers(timer(NOW + 5, name=f"m{n}") for n in range(100_000))

    first = near.take(NOW + 5, lambda _: 200)

    assert first is not None
    assert len(near._ready[1]._unpacked) < 1_000
    assert len(first[1]) + len(take_all(near, NOW + 5)) == 100_000


def test_a_queue_with_many_due_timers_delays_those_of_another_queue_by_few_batches() -> None:
    near = near_timers(timer(NOW + 5, 1, f"m{n}") for n in range(50_000))
    near.add(NOW + 6, timer(NOW + 6, 2, "late"))

    batches = []
    while batch := near.take(NOW + 10, lambda _: 200):
        batches.append(batch)

    assert [number for number, _ in batches].index(2) <= 11
    names = [one.name for number, taken in batches if number == 1 for one in unpack(b"".join(taken))]
    assert names == [b"m%d" % n for n in range(50_000)]
    assert near.count == 0


def test_timers_that_are_put_back_come_before_packed_ones() -> None:
    near = near_timers(timer(NOW, name=f"m{n}") for n in range(1_000))
    taken: list[bytes] = []
    while batch := near.take(NOW, lambda _: 150):
        near.put_back(1, batch[1][100:])
        taken += batch[1][:100]

    assert [one.name for one in unpack(b"".join(taken))] == [b"m%d" % n for n in range(1_000)]


def test_a_slot_is_quiet_when_the_last_of_its_timers_is_answered() -> None:
    memory = LoadedTimers(NOW)
    slot = NOW >> 12
    here = [timer(slot << 12, name="a"), timer((slot << 12) + 4_095, name="b", kind=Kind.RETIRE)]
    memory.add_packed(b"".join(here))
    memory.add_packed(timer((slot + 1) << 12))

    memory.on_answered(here[:1])
    assert memory.is_open(slot)
    assert memory.drained_slots == set()

    memory.on_answered(here[1:])
    assert not memory.is_open(slot)
    assert memory.drained_slots == {slot}
    assert memory.is_open(slot + 1)
    assert memory.count == 1


def test_a_timer_read_twice_stays_open_until_both_are_answered() -> None:
    memory = LoadedTimers(NOW)
    memory.add_packed(timer(NOW))
    memory.add_packed(timer(NOW))

    memory.on_answered([timer(NOW)])

    assert memory.is_open(NOW >> 12)
