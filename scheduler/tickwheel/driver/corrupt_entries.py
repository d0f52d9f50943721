"""Corrupt data of a shard: entries of its inbox, outbox and slots, and values of its clock.

A user of Redis who may write to these keys, such as the user of the service, can make them corrupt. The driver skips
entries that are not timers, and the relay skips entries that are not events, so that everything else continues. Both
skip entries that are larger than any entry of a script, because these would take their memory or their time. The
entries are trimmed with their neighbours. A claim of the shard removes or replaces a corrupt value
(`claim_shard.lua`).
"""

import logging
from collections.abc import Sequence
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
    """Counts and logs what one shard's driver and relay skip, and what its claims replace."""

    def __init__(self, shard: int, stats: WheelStats) -> None:
        self._shard = shard
        self._stats = stats

    def skip(self, where: str, packed: bytes, error: CorruptTimers) -> None:
        self._stats.corrupt_entries += 1
        _log.log(
            _log_throttle.level("corrupt entry"),
            "shard %d: skipped %s, because no program of Tickwheel writes such timers (%s); it begins with %s. Find out"
            " who can write to the keys of the shard",
            *(self._shard, where, error, packed[:_SHOWN_BYTES].hex()),
        )

    def skip_event(self, entry_id: bytes, entry: bytes, problem: str) -> None:
        self._stats.corrupt_events += 1
        _log.log(
            _log_throttle.level("corrupt event"),
            "shard %d: skipped entry %s of the outbox, because it is not an event of a queue (%s); it has %d bytes, and"
            " begins with %s. Find out who can write to the keys of the shard",
            *(self._shard, entry_id.decode(), problem, len(entry), entry[:_SHOWN_BYTES].hex()),
        )

    def report_replaced(self, corrupt: Sequence[bytes]) -> None:
        """Report the values that a claim has removed or replaced: names of fields, each followed by its value."""
        for field, value in zip(corrupt[::2], corrupt[1::2], strict=True):
            self._stats.corrupt_values += 1
            _log.warning(
                "shard %d: the field %s of the key clock was corrupt, and this claim has replaced it: no event process"
                " writes the value %r. Find out who can write to the keys of the shard",
                *(self._shard, field.decode(), value),
            )
