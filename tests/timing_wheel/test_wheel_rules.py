"""The guarantees of a timing wheel, one by one, on small examples."""

import pytest

from timing_wheel import TimingWheel

pytestmark = pytest.mark.unit


def test_an_item_is_handed_out_at_its_time_and_not_before() -> None:
    wheel: TimingWheel[str] = TimingWheel(100)
    wheel.add(105, "tea")

    assert wheel.advance(104) == []
    assert wheel.advance(105) == ["tea"]
    assert wheel.advance(106) == []


def test_the_same_object_is_handed_out() -> None:
    class Touchy:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError("the wheel compared an item")

    items: list[object] = [Touchy(), None, [], bytearray(b"packed")]
    wheel: TimingWheel[object] = TimingWheel(0)
    for item in items:
        wheel.add(5, item)

    assert [id(item) for item in wheel.advance(5)] == [id(item) for item in items]


def test_items_are_handed_out_in_the_order_of_ticks() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    for time in (70_000, 3, 4_096, 65, 1, 63, 64, 300_000, 128):
        wheel.add(time, time)

    assert wheel.advance(1_000_000) == [1, 3, 63, 64, 65, 128, 4_096, 70_000, 300_000]


def test_items_of_one_tick_are_handed_out_in_the_order_of_adding_even_through_cascades() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(5_000, "added from two levels up")
    wheel.advance(4_960)
    wheel.add(5_000, "added from one level up")
    wheel.advance(4_995)
    wheel.add(5_000, "added from near by")

    assert wheel.advance(5_000) == [
        "added from two levels up",
        "added from one level up",
        "added from near by",
    ]


@pytest.mark.parametrize(
    ("time", "fires_at"),
    [(101, 110), (109, 110), (110, 110), (111, 120), (739, 740), (740, 740), (741, 750)],
)
def test_a_time_between_two_ticks_counts_as_the_later_tick(time: int, fires_at: int) -> None:
    wheel: TimingWheel[int] = TimingWheel(100, tick=10)
    wheel.add(time, time)

    assert wheel.next_expiry() == fires_at
    assert wheel.advance(fires_at - 1) == []
    assert wheel.advance(fires_at) == [time]


@pytest.mark.parametrize("time", [-(10**15), 0, 99, 103, 105])
def test_a_time_already_reached_is_due_at_once(time: int) -> None:
    wheel: TimingWheel[int] = TimingWheel(105, tick=10)
    wheel.add(time, time)

    assert wheel.next_expiry() == 105
    assert wheel.advance(105) == [time]


def test_late_items_precede_items_on_time_and_keep_the_order_of_adding() -> None:
    wheel: TimingWheel[str] = TimingWheel(1_000)
    wheel.add(1_001, "in time")
    wheel.add(7, "late")
    wheel.add(3, "later still")

    assert wheel.advance(1_001) == ["late", "later still", "in time"]


def test_negative_times_are_valid() -> None:
    wheel: TimingWheel[int] = TimingWheel(-5_000, tick=7)
    for time in (3, -4_999, -1, -64, 0, -4_096):
        wheel.add(time, time)

    assert wheel.next_expiry() == -4_998
    assert wheel.advance(-1) == [-4_999, -4_096, -64]
    assert wheel.advance(0) == [-1, 0]
    assert wheel.advance(7) == [3]


def test_a_time_beyond_all_levels_adds_levels() -> None:
    far = 10**30
    wheel: TimingWheel[str] = TimingWheel(1_700_000_000_000)
    wheel.add(far, "the end")

    assert wheel.next_expiry() == far
    assert wheel.advance(far - 1) == []
    assert wheel.advance(far) == ["the end"]


def test_a_cancelled_item_is_never_handed_out() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(500, "kept")
    timer = wheel.add(500, "cancelled")

    assert wheel.cancel(timer)
    assert wheel.advance(10_000) == ["kept"]


def test_cancel_returns_true_once_and_false_afterwards() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    timer = wheel.add(500, "x")

    assert [wheel.cancel(timer), wheel.cancel(timer)] == [True, False]
    wheel.advance(500)
    assert not wheel.cancel(timer)


def test_cancel_returns_false_for_an_item_that_was_handed_out() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    early, late = wheel.add(5, "early"), wheel.add(0, "late")
    wheel.advance(5)

    assert not wheel.cancel(early)
    assert not wheel.cancel(late)


def test_a_due_item_that_was_not_taken_can_still_be_cancelled() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    for name in ("first", "third"):
        wheel.add(5, name)
    second = wheel.add(0, "late, so first of all")
    fourth = wheel.add(5, "fourth")

    assert wheel.advance(5, limit=1) == ["late, so first of all"]
    assert wheel.advance(5, limit=1) == ["first"]
    assert [wheel.cancel(second), wheel.cancel(fourth)] == [False, True]
    assert wheel.advance(5) == ["third"]


def test_a_timer_of_one_wheel_cancels_nothing_in_another() -> None:
    one: TimingWheel[str] = TimingWheel(0)
    other: TimingWheel[str] = TimingWheel(0)
    timers = [one.add(time, "one's") for time in (0, 5, 10**9)]
    for time in (0, 5):
        other.add(time, "other's")

    assert [other.cancel(timer) for timer in timers] == [False, False, False]
    assert len(other) == 2


def test_timers_sort_in_firing_order() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    b, c, a = wheel.add(7, "b"), wheel.add(7, "c"), wheel.add(3, "a")

    assert sorted([c, b, a]) == [a, b, c]


def test_a_clock_that_steps_back_fires_nothing() -> None:
    wheel: TimingWheel[str] = TimingWheel(1_000)
    wheel.add(1_500, "later")

    assert wheel.advance(200) == []
    assert wheel.reached == 1_000
    assert wheel.advance(1_499) == []
    assert wheel.advance(1_500) == ["later"]


def test_after_a_step_back_new_items_count_from_the_furthest_time_reached() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.advance(1_000)
    wheel.advance(400)
    wheel.add(500, "passed before the step")
    wheel.add(1_001, "not passed")

    assert wheel.next_expiry() == 1_000
    assert wheel.advance(999) == []
    assert wheel.advance(1_000) == ["passed before the step"]
    assert wheel.advance(1_001) == ["not passed"]


def test_advance_with_a_limit_hands_out_the_rest_later_and_loses_nothing() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    times = [5, 5, 5, 64, 64, 4_096, 9_000, 9_000]
    for time in times:
        wheel.add(time, time)

    batches = []
    while batch := wheel.advance(10_000, limit=3):
        batches.append(batch)

    assert batches == [[5, 5, 5], [64, 64, 4_096], [9_000, 9_000]]


def test_a_full_list_stops_the_wheel_at_its_last_tick_and_a_shorter_one_at_now() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(5, "a")
    wheel.add(70, "b")

    wheel.advance(100, limit=1)
    assert (wheel.reached, wheel.next_expiry()) == (5, 70)
    wheel.advance(100, limit=1)
    assert (wheel.reached, wheel.next_expiry()) == (70, None)
    wheel.advance(100, limit=1)
    assert wheel.reached == 100


def test_an_item_added_between_two_batches_has_its_place_in_the_order() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    for time, name in ((10, "a"), (10, "b"), (90, "d")):
        wheel.add(time, name)

    assert wheel.advance(100, limit=1) == ["a"]
    wheel.add(50, "c")
    wheel.add(4, "late: after what is due already")
    assert wheel.advance(100) == ["b", "late: after what is due already", "c", "d"]


def test_after_a_full_list_and_a_step_back_only_items_due_at_the_new_time_are_handed_out() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    for time in (10, 20, 30):
        wheel.add(time, time)

    assert wheel.advance(100, limit=1) == [10]
    assert wheel.advance(25) == [20]
    assert wheel.advance(9) == []
    assert wheel.advance(100) == [30]


def test_a_handler_may_add_and_cancel_while_it_processes_a_list() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(5, "adds")
    same_list = wheel.add(6, "in the same list")
    later = wheel.add(7_000, "later")
    items = []

    for item in wheel.advance(10):
        items.append(item)
        if item == "adds":
            wheel.add(5, "again")
            assert not wheel.cancel(same_list)
            assert wheel.cancel(later)

    assert items == ["adds", "in the same list"]
    assert wheel.advance(10) == ["again"]
    assert wheel.advance(10_000) == []


def test_a_handler_may_advance_the_wheel_itself() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    for time in range(1, 7):
        wheel.add(time, time)

    items: list[int] = []
    for item in wheel.advance(10, limit=2):
        items.append(item)
        items += wheel.advance(10, limit=2)

    assert items == [1, 3, 4, 2, 5, 6]
    assert not wheel


def test_a_handler_that_always_adds_due_items_does_not_keep_advance_from_ending() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(1, "again")

    for _ in range(5):
        for item in wheel.advance(1):
            wheel.add(1, item)

    assert wheel.advance(1) == ["again"]


def test_sleeping_until_next_expiry_is_on_time_for_all_items_and_never_wakes_for_nothing() -> None:
    wheel: TimingWheel[int] = TimingWheel(1_700_000_000_000)
    times = [1_700_000_000_000 + 3**power for power in range(30)]
    for time in times:
        wheel.add(time, time)

    woken_for = []
    while (wake := wheel.next_expiry()) is not None:
        woken_for.append((wake, wheel.advance(wake)))

    assert woken_for == [(time, [time]) for time in times]


def test_next_expiry_ignores_cancelled_items() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    first, second = wheel.add(70_000, "first"), wheel.add(70_001, "second")
    wheel.add(70_002, "third")

    assert wheel.next_expiry() == 70_000
    wheel.cancel(first)
    assert wheel.next_expiry() == 70_001
    between = wheel.add(70_000, "between")
    assert wheel.next_expiry() == 70_000
    wheel.cancel(between)
    wheel.cancel(second)
    assert wheel.next_expiry() == 70_002


def test_an_empty_wheel_has_no_next_expiry() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    assert wheel.next_expiry() is None
    wheel.cancel(wheel.add(10**6, "x"))
    assert wheel.next_expiry() is None
    wheel.add(10, "y")
    wheel.advance(10)
    assert wheel.next_expiry() is None


def test_the_length_counts_items_not_handed_out_and_an_empty_wheel_is_false() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    assert (len(wheel), bool(wheel)) == (0, False)
    timers = [wheel.add(time, "x") for time in (0, 5, 5, 500_000)]
    assert (len(wheel), bool(wheel)) == (4, True)
    wheel.cancel(timers[3])
    wheel.advance(5, limit=1)
    assert len(wheel) == 2
    wheel.advance(5)
    assert (len(wheel), bool(wheel)) == (0, False)


def test_reading_a_wheel_does_not_change_it() -> None:
    wheel: TimingWheel[str] = TimingWheel(1_003, tick=10)
    for time, name in ((1_700, "b"), (1_009, "a"), (0, "late")):
        wheel.add(time, name)

    assert list(wheel) == [(1_003, "late"), (1_010, "a"), (1_700, "b")]
    assert repr(wheel) == "<TimingWheel of 3 at 1003, next 1003, tick 10, radix 64, 2 levels>"
    assert len(wheel) == 3
