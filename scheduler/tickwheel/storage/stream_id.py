"""Ids of the entries of a Redis stream: ``milliseconds-sequence``, ascending."""


def id_after(entry_id: bytes) -> bytes:
    """Return the smallest id above ``entry_id``."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
