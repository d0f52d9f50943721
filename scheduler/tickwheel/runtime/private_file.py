"""Files and folders that only this user and root can change: the checks, and the function that opens such files.

Tickwheel writes to a path only after these checks. Otherwise, another user could put a symbolic link there and so make
Tickwheel change a file of its own user. Each error names the path, its owner and mode, what is allowed, and the remedy.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_LINKS_MAX: Final = 40


class UnsafePath(PermissionError):
    """Another user can change the file or folder, or has made it."""


def open_private(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a regular file of this user or root that nobody else can change, and return its descriptor. If ``flags``
    create the file, its mode is ``mode``, without the bits of the umask.

    A symbolic link is never followed. Raises UnsafePath for a link, and for a file that others can change.
    """
    # A file must not be truncated before it is checked.
    assert not flags & os.O_TRUNC
    assert not mode & _OTHERS_WRITE
    try:
        # O_NONBLOCK: a pipe with this name would block the call. The flag has no effect on regular files.
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except FileNotFoundError:
        raise
    except OSError:
        # Explain the refusal by the system, if the reason is a link or the owner.
        check_entries([Path(path)])
        raise
    try:
        _check(path, os.fstat(fd))
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnsafePath(f"{path} must be a file, but has {_describe(os.fstat(fd))}. Remove it")
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_entries(paths: Iterable[Path]) -> None:
    """Raise UnsafePath if one of the paths is a symbolic link, or if others can change its file or folder.

    A path that does not exist is accepted.
    """
    for path in paths:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            raise UnsafePath(
                f"{path} is a symbolic link, which Tickwheel does not follow, because it writes to this path. Remove"
                " the link"
            )
        _check(path, status)


def check_single_name(path: Path) -> None:
    """Raise UnsafePath if the file has further names, in other words hard links, by which others may have opened it."""
    try:
        names = path.lstat().st_nlink
    except FileNotFoundError:
        return
    if names > 1:
        raise UnsafePath(f"{path} is a hard link to a file with {names} names; allowed is a file with one name")


def check_owner(folder: Path) -> None:
    """Raise UnsafePath if the folder belongs neither to this user nor to root."""
    status = folder.stat()
    if not _is_trusted(status.st_uid):
        raise UnsafePath(f"{folder} has {_describe(status)}; allowed are the owners {_trusted_users()}")


def make_private_folder(folder: Path) -> None:
    """Create the folder with mode 0700, or verify that this user owns the folder and nobody else has access to it."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UnsafePath(
                f"{folder} must be a folder with owner {os.geteuid()} and mode 0700, but has {_describe(status)}. Run"
                " as that user, correct the mode, or remove the folder"
            ) from None


def make_data_folder(folder: Path) -> None:
    """Create the folder with mode 0700, and its missing parents with mode 0755."""
    missing = []
    for parent in folder.parents:
        if parent.exists():
            break
        missing.append(parent)
    for parent in reversed(missing):
        parent.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_data_folder(folder: Path) -> None:
    """Raise UnsafePath if another user has made the folder, can write to it, or can replace it by another folder.

    Members of a group that may write to a parent, and the owner of a parent, are trusted not to replace the folder.
    """
    _check(
        folder,
        folder.lstat(),
        f"pass a folder inside it, such as {folder / 'tickwheel'}, which Tickwheel creates with mode 0700; or, for a"
        f" folder that only Tickwheel uses, run: chown -R {os.geteuid()} {folder}; chmod -R go-w {folder}. On a"
        " Kubernetes volume with fsGroup, pass a folder inside the volume, and set fsGroupChangePolicy: OnRootMismatch,"
        " so that Kubernetes does not change the mode of this folder later",
    )
    check_parents(folder)


def check_parents(folder: Path) -> None:
    """Raise UnsafePath if every user can replace the folder by another folder. The path must have no links."""
    for parent in folder.parents:
        status = parent.lstat()
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise UnsafePath(
                f"{parent} has {_describe(status)}, so every user can replace the folder {folder} in it. Allowed are"
                f" parents that not everybody can write to, and parents with the sticky bit, like /tmp. As the owner of"
                f" {parent} or as root, run: chmod +t {parent} (for a Kubernetes volume, in an init container); or pass"
                " a folder with other parents"
            )


def resolve_path(path: Path) -> Path:
    """Return the absolute path without symbolic links. Parts of the path may be missing.

    Raises UnsafePath for a link of another user in a folder that everybody may write to, as Linux does with the setting
    fs.protected_symlinks.
    """
    if os.name != "posix":
        return path.resolve()
    path = path.absolute()
    resolved, parts, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    while parts:
        name = parts.pop()
        if name == "..":
            resolved = resolved.parent
            continue
        step = resolved / name
        status = _status(step)
        if status is None or not stat.S_ISLNK(status.st_mode):
            resolved = step
            continue
        if resolved.stat().st_mode & stat.S_IWOTH and not _is_trusted(status.st_uid):
            raise UnsafePath(
                f"{step} is a symbolic link of the user {status.st_uid}, in a folder that everybody may write to."
                f" Allowed are links of the users {_trusted_users()}. Pass the path without the link"
            )
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        resolved = Path(target.anchor) if target.is_absolute() else resolved
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return resolved


def _check(path: str | os.PathLike[str], status: os.stat_result, remedy: str | None = None) -> None:
    if not _is_trusted(status.st_uid) or status.st_mode & _OTHERS_WRITE:
        raise UnsafePath(
            f"{path} has {_describe(status)}, so other users can change it. Allowed are the owners {_trusted_users()},"
            " without write permission for the group and for others. Remedy:"
            f" {remedy or f'remove it, or run: chown {os.geteuid()} {path}; chmod go-w {path}'}"
        )


def _is_trusted(user: int) -> bool:
    return user in (0, os.geteuid())


def _trusted_users() -> str:
    return "0 (root)" if os.geteuid() == 0 else f"{os.geteuid()} and 0 (root)"


def _describe(status: os.stat_result) -> str:
    return f"owner {status.st_uid} and mode {stat.filemode(status.st_mode)}"


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
