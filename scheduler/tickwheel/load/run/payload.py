"""What a message of a load carries to its worker: when it was due, how long it runs, how often it fails."""

from struct import Struct

# Seconds of the run since its start, by the clock that all its processes share; seconds that the work takes.
_CONTENT = Struct(">ddI")
MIN_BYTES = _CONTENT.size


def pack(due_s: float, run_s: float, failures: int, size: int) -> bytes:
    return _CONTENT.pack(due_s, run_s, failures).ljust(size, b".")


def unpack(payload: bytes) -> tuple[float, float, int]:
    """Due, run time, failures."""
    due_s, run_s, failures = _CONTENT.unpack_from(payload)
    return due_s, run_s, failures
