"""The topic and the announcements of messages that end, on one shard of a queue.

A topic names what a process subscribes to: a queue, for its wake-ups, or a queue and a shard, for the ends of messages.
"""

from collections.abc import Iterator
from typing import Final

# The name of a queue never contains this character.
END_MARK: Final = ":"


def end_topic(queue: str, shard: int) -> str:
    """Return the topic for the ends of a queue's messages on a shard."""
    return f"{queue}{END_MARK}{shard}"


def is_end_topic(topic: str) -> bool:
    return END_MARK in topic


def ended_fields(data: bytes) -> Iterator[bytes]:
    """Yield the field of each message that an announcement names (`lua/_ended.lua`): each an I2c0."""
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        yield data[at + 2 : end]
        at = end
