"""Ids of a stream's entries: ``milliseconds-sequence``, growing."""


def id_after(entry_id: bytes) -> bytes:
    """The smallest id above this one."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
