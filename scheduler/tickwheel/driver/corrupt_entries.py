"""Entries of the inbox, and chunks of slots, that are not timers: they are skipped, so that all other timers fire.

A user of Redis who may write to the inbox, such as the user of the service, can add such an entry. The driver trims the
entry with its neighbours.
"""

import logging
from typing import Final

from tickwheel.driver.stats import WheelStats
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.timer import CorruptTimers

# Number of bytes of an entry that are logged.
_SHOWN_BYTES: Final = 32

_log = logging.getLogger("tickwheel.event_process")
# Shared by all shards.
_log_throttle = LogThrottle()


class CorruptEntries:
    """Counts and logs what one shard's driver skips."""

    def __init__(self, shard: int, stats: WheelStats) -> None:
        self._shard = shard
        self._stats = stats

    def skip(self, where: str, packed: bytes, error: CorruptTimers) -> None:
        self._stats.corrupt_entries += 1
        _log.log(
            _log_throttle.level("corrupt entry"),
            "shard %d: skipped %s, because its bytes are not timers (%s); it begins with %s. Find out who can write to"
            " the keys of the shard",
            *(self._shard, where, error, packed[:_SHOWN_BYTES].hex()),
        )
