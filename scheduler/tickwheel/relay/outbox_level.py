"""The fill level of an outbox. The log gets one line when a level is reached, and one when the outbox recovers."""

import logging
from enum import Enum


class OutboxLevel(Enum):
    """HALF starts at half of the limit, and FULL at the limit. See `next_level`."""

    LOW = 0
    HALF = 1
    FULL = 2

    def log_change(self, logger: logging.Logger, shard: int, size: int, limit: int, *, drops: bool) -> None:
        """Log that the outbox has reached this level. ``drops``: events are dropped at the limit."""
        usage = f"shard {shard}: the outbox has {size:,} of {limit:,} bytes of events"
        if self is OutboxLevel.LOW:
            logger.info("%s: the relay keeps up again", usage)
        elif self is OutboxLevel.HALF:
            consequence = "events will be dropped" if drops else "new messages will be rejected"
            logger.warning("%s that wait for Kafka; at the limit, %s", usage, consequence)
        else:
            consequence = "events are dropped" if drops else "new messages are rejected until Kafka accepts events"
            logger.error("%s: %s", usage, consequence)


def next_level(size: int, limit: int, before: OutboxLevel) -> OutboxLevel:
    """Return the level of an outbox of ``size`` bytes.

    A level ends when the size falls below half of the size at which the level starts. So a size that varies a little
    does not change the level each time.
    """
    if size >= limit:
        return OutboxLevel.FULL
    if before is OutboxLevel.FULL and 2 * size >= limit:
        return OutboxLevel.FULL
    if 2 * size >= limit or (before is OutboxLevel.HALF and 4 * size >= limit):
        return OutboxLevel.HALF
    return OutboxLevel.LOW
