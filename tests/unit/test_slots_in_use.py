"""The slots of a driver that is up to date do not wait, and the slots of a driver that has stopped soon do."""

import pytest
from hypothesis import given, strategies as st

from tickwheel.doctor.slots_in_use import SLOT_MS, SlotsInUse
from tickwheel.storage.wheel_levels import HIGHEST, LOWEST, length, level_for, number, serve_time

pytestmark = pytest.mark.unit

FILED = st.integers(0, 2**46)
# Small and large times are equally likely, so that every level is.
SPANS = st.integers(0, 44).flatmap(lambda bits: st.integers(0, 2**bits))


def slot_at(due: int, filed: int, now: int) -> tuple[int, int]:
    """Return the slot of a timer if a driver filed it at ``filed``, and has served every slot up to ``now``."""
    level = level_for(due, filed)
    while level > LOWEST and serve_time(level, number(level, due)) <= now:
        level -= 1
    return level, number(level, due)


@given(FILED, SPANS, SPANS)
def test_no_slot_of_a_driver_that_is_up_to_date_waits(filed: int, later: int, delay: int) -> None:
    now = filed + later
    slots = SlotsInUse((slot_at(now + delay, filed, now),))

    assert slots.waiting_ms(now) == 0


@given(FILED, SPANS, SPANS)
def test_a_slot_of_a_stopped_driver_waits_soon_after_its_message_is_due(filed: int, later: int, delay: int) -> None:
    stopped = filed + later
    due = stopped + delay
    slots = SlotsInUse((slot_at(due, filed, stopped),))

    assert slots.waiting_ms(due + length(LOWEST) + SLOT_MS) >= SLOT_MS


@pytest.mark.parametrize("level", range(LOWEST + 1, HIGHEST + 1))
def test_a_slot_waits_from_the_time_of_its_cascade(level: int) -> None:
    slots = SlotsInUse(((level, 7),))
    cascaded = 7 * length(level) - length(level - 1)

    assert [slots.waiting_ms(cascaded + ms) for ms in (-1, 0, 1)] == [0, 0, 1]


def test_a_slot_of_the_lowest_level_waits_from_its_end() -> None:
    slots = SlotsInUse(((LOWEST, 7),))

    assert [slots.waiting_ms(8 * length(LOWEST) + ms) for ms in (-1, 0, 1)] == [0, 0, 1]


BEFORE = SlotsInUse(((3, 1), (4, 1)), {(3, 1): 5})


@pytest.mark.parametrize(
    ("now", "is_moved"),
    [
        (BEFORE, False),
        (SlotsInUse(BEFORE.slots, {(3, 1): 4}), True),
        (SlotsInUse(BEFORE.slots, {(3, 1): 6}), True),
        (SlotsInUse(((4, 1),), {}), True),
        (SlotsInUse(((2, 64), *BEFORE.slots), BEFORE.chunks), True),
        # The time passes, and the cascade of another slot is due.
        (SlotsInUse(BEFORE.slots, {(3, 1): 5, (4, 1): 9}), False),
    ],
)
def test_only_a_driver_moves_the_slots(now: SlotsInUse, is_moved: bool) -> None:
    assert now.has_moved(BEFORE) == is_moved
