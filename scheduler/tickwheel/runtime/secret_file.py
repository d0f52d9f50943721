"""Files with secrets that an administrator writes: tokens, keys and passwords.

The file may be a symbolic link, may belong to root, and may be readable by a group of this user, as Kubernetes mounts
secrets. Every user of the machine must not be able to read or change it.
"""

import os
import stat
from pathlib import Path
from typing import Final

from tickwheel.errors import InvalidArgument

_KINDS: Final = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
KUBERNETES: Final = (
    "For a Kubernetes secret, set defaultMode: 0440, and fsGroup to a group that the container's user gets"
)


def read_secret_file(name: str, path: Path) -> bytes:
    """Return the content of the file. ``name`` describes the file in errors, for example "the token file".

    Raises InvalidArgument if the file is unreadable, if it is not a regular file, or if every user of the machine can
    read or change it.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            # The status of the open file: the name may stand for another file at the next moment.
            status = os.fstat(file.fileno())
            check_regular_status(name, path, status)
            check_private_status(name, path, status)
            return file.read()
    except OSError as error:
        raise InvalidArgument(f"{name} {path} cannot be read: {error.strerror}") from error


def check_regular_status(name: str, path: Path, status: os.stat_result) -> None:
    """Raise InvalidArgument if the status is not that of a regular file. A read of a pipe or a device may never end."""
    if not stat.S_ISREG(status.st_mode):
        raise InvalidArgument(
            f"{name} {path} cannot be read: it must be a regular file, or a symbolic link to one, and is"
            f" {_KINDS.get(stat.S_IFMT(status.st_mode), 'a device')}"
        )


def check_private_status(name: str, path: Path, status: os.stat_result) -> None:
    """Raise InvalidArgument if any user of this machine can read or change the file with this status."""
    if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise InvalidArgument(
            f"{name} {path} is accessible to every user of this machine: chmod o-rwx {path}. {KUBERNETES}"
        )


def _open_without_waiting(path: str, flags: int) -> int:
    # Without the flag, the call would wait until a pipe has a writer. The flag has no effect on regular files.
    return os.open(path, flags | os.O_NONBLOCK)
