"""The level of an outbox changes when the outbox fills up and when it has drained, so that each is logged once."""

import pytest

from tickwheel.relay.outbox_level import OutboxLevel, next_level

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        (OutboxLevel.LOW, 49, OutboxLevel.LOW),
        (OutboxLevel.LOW, 50, OutboxLevel.HALF),
        (OutboxLevel.LOW, 100, OutboxLevel.FULL),
        (OutboxLevel.HALF, 25, OutboxLevel.HALF),
        (OutboxLevel.HALF, 24, OutboxLevel.LOW),
        (OutboxLevel.HALF, 100, OutboxLevel.FULL),
        (OutboxLevel.FULL, 50, OutboxLevel.FULL),
        (OutboxLevel.FULL, 49, OutboxLevel.LOW),
    ],
)
def test_an_outbox_level_ends_well_below_the_size_where_it_begins(
    before: OutboxLevel, size: int, after: OutboxLevel
) -> None:
    assert next_level(size, 100, before) is after
