"""Ids of the entries of a Redis stream: ``milliseconds-sequence``, ascending."""

_HIGHEST = 2**64 - 1
# A stream whose last entry has this id accepts no further entry.
HIGHEST_ID = b"%d-%d" % (_HIGHEST, _HIGHEST)


def id_after(entry_id: bytes) -> bytes:
    """Return the smallest id above ``entry_id``; if there is no higher id, return ``entry_id``."""
    milliseconds, sequence = map(int, entry_id.split(b"-"))
    if sequence < _HIGHEST:
        return b"%d-%d" % (milliseconds, sequence + 1)
    return b"%d-0" % (milliseconds + 1) if milliseconds < _HIGHEST else entry_id


def age_ms(entry_id: bytes, now_ms: int) -> int | None:
    """Return the age of an entry by the time in its id; None if the age is unknown.

    Ids never go back with the server's clock. If the clock was ahead and was corrected, the ids of new entries stay
    ahead of the clock until the clock has passed them.
    """
    added_ms = int(entry_id.partition(b"-")[0])
    return now_ms - added_ms if added_ms <= now_ms else None
