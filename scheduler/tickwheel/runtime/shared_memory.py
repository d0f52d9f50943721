"""Memory that a process shares with its children, under a file descriptor that they inherit."""

import os
import tempfile

from tickwheel.errors import TickwheelError


def create_shared_memory(size: int) -> int:
    """Return the descriptor of a new file without a name, of ``size`` zero bytes.

    Raises TickwheelError if the file is in the temporary directory, which is so on systems other than Linux, and the
    directory has no space.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tickwheel")
        os.truncate(fd, size)
        return fd
    try:
        with tempfile.TemporaryFile() as file:
            # If the file had holes and the directory became full, the system would kill each process that writes to the
            # memory.
            file.write(bytes(size))
            file.flush()
            return os.dup(file.fileno())
    except OSError as error:
        raise TickwheelError(
            f"a file of {size:,} bytes cannot be created in the temporary directory: {error}; free space, or set TMPDIR"
            " to another directory"
        ) from error
