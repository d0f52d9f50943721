"""How full an outbox is, in words for the log: said once when it gets there, and once when it is over."""

import logging
from enum import Enum


class OutboxLevel(Enum):
    """LOW is below half of the limit; FULL is at it."""

    LOW = 0
    HALF = 1
    FULL = 2

    def log_change(self, logger: logging.Logger, shard: int, size: int, limit: int, *, drops: bool) -> None:
        """Say that the outbox has come to this level."""
        usage = f"shard {shard}: the outbox has {size:,} of {limit:,} bytes of events"
        if self is OutboxLevel.LOW:
            logger.info("%s: it is being relayed again", usage)
        elif self is OutboxLevel.HALF:
            consequence = "events will be dropped" if drops else "new messages will be refused"
            logger.warning("%s that wait for Kafka; at the limit %s", usage, consequence)
        else:
            logger.error(
                "%s: %s", usage, "events are dropped" if drops else "new messages are refused until Kafka takes some"
            )


def next_level(size: int, limit: int, before: OutboxLevel) -> OutboxLevel:
    """The level of an outbox of so many bytes. One is left well below where it begins, so that the log stays quiet."""
    if size >= limit:
        return OutboxLevel.FULL
    if before is OutboxLevel.FULL and 2 * size >= limit:
        return OutboxLevel.FULL
    if 2 * size >= limit or (before is OutboxLevel.HALF and 4 * size >= limit):
        return OutboxLevel.HALF
    return OutboxLevel.LOW
