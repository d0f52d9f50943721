"""The folder for the lock files of this user's event processes, which no other user can enter."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from tickwheel.runtime.private_file import UnsafePath, check_owner, make_data_folder, make_private_folder

_NAME = "tickwheel"


def lock_folder() -> Path:
    """Return the folder, and create it if it is missing. Only this user has access to it.

    The folder is in the user's folder for state. If no folder can be made there, the folder is in `XDG_RUNTIME_DIR` or,
    as the last choice, in the folder for temporary files. All event processes of a user on a host find the same folder
    if they have the same `HOME`. The folder for state comes first, because `XDG_RUNTIME_DIR` is set, and exists, only
    during a login session.

    Raises UnsafePath if none of the folders can be used.
    """
    problems = []
    for folder in _candidates():
        try:
            # If `HOME` is the folder of another user, do not make folders there, which that user could not use.
            check_owner(next(parent for parent in folder.parents if parent.exists()))
            make_data_folder(folder.parent)
            make_private_folder(folder)
        except OSError as error:
            problems.append(str(error))
        else:
            return folder
    raise UnsafePath(
        f"there is no folder for the lock files of this user's event processes: {'; '.join(problems)}. Set"
        " XDG_STATE_HOME to a folder of this user, or pass --lock FILE to `tickwheel events`"
    )


def former_lock(path: Path) -> Path | None:
    """Return the lock file that earlier versions of Tickwheel use in place of ``path``, in the folder for temporary
    files. Return None if these versions use ``path``, too.
    """
    return Path(tempfile.gettempdir(), path.name) if path.parent in _candidates() else None


def _candidates() -> Iterator[Path]:
    folders = [Path(platformdirs.user_state_path(_NAME), "locks")]
    if runtime_folder := os.environ.get("XDG_RUNTIME_DIR"):
        folders.append(Path(runtime_folder, _NAME))
    folders.append(Path(tempfile.gettempdir(), f"{_NAME}-{os.geteuid()}"))
    # If `HOME` is not set, the path of the first folder may be relative.
    return filter(Path.is_absolute, folders)
