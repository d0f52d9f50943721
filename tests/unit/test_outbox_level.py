"""The log is told when an outbox fills up, and when that is over, and not in between."""

import pytest

from tickwheel.relay.outbox_level import Level, level

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        (Level.LOW, 49, Level.LOW),
        (Level.LOW, 50, Level.HALF),
        (Level.LOW, 100, Level.FULL),
        (Level.HALF, 25, Level.HALF),
        (Level.HALF, 24, Level.LOW),
        (Level.HALF, 100, Level.FULL),
        (Level.FULL, 50, Level.FULL),
        (Level.FULL, 49, Level.LOW),
    ],
)
def test_a_level_is_left_well_below_where_it_begins(before: Level, size: int, after: Level) -> None:
    assert level(size, 100, before) is after
