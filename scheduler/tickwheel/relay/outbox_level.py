"""How full an outbox is, in words for the log: said once when it gets there, and once when it is over."""

import logging
from enum import Enum


class Level(Enum):
    """LOW is below half of the limit; FULL is at it."""

    LOW = 0
    HALF = 1
    FULL = 2

    def log(self, to: logging.Logger, shard: int, size: int, limit: int, *, drops: bool) -> None:
        """Say that the outbox has come to this level."""
        found = f"shard {shard}: the outbox has {size:,} of {limit:,} bytes of events"
        if self is Level.LOW:
            to.info("%s: it is being relayed again", found)
        elif self is Level.HALF:
            then = "events will be dropped" if drops else "new messages will be refused"
            to.warning("%s that wait for Kafka; at the limit %s", found, then)
        else:
            to.error(
                "%s: %s", found, "events are dropped" if drops else "new messages are refused until Kafka takes some"
            )


def level(size: int, limit: int, before: Level) -> Level:
    """The level of an outbox of so many bytes. One is left well below where it begins, so that the log stays quiet."""
    if size >= limit:
        return Level.FULL
    if before is Level.FULL and 2 * size >= limit:
        return Level.FULL
    if 2 * size >= limit or (before is Level.HALF and 4 * size >= limit):
        return Level.HALF
    return Level.LOW
