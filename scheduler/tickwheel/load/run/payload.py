"""The payload of a message of a load run: due time, run time, and number of attempts that fail."""

from struct import Struct

# Due time: seconds since the start of the run, on the clock that all processes of the run share. Run time: seconds.
# Failures: number of attempts that fail.
_CONTENT = Struct(">ddI")
# Minimum size of a payload of the run.
BYTES_MIN = _CONTENT.size


def pack(due_s: float, run_s: float, failures: int, size: int) -> bytes:
    return _CONTENT.pack(due_s, run_s, failures).ljust(size, b".")


def unpack(payload: bytes) -> tuple[float, float, int]:
    """Return due time, run time and failures."""
    due_s, run_s, failures = _CONTENT.unpack_from(payload)
    return due_s, run_s, failures
