"""The two files of a report: the page and, under the same name, the JSON document.

Neither is written through a link, so a link that another user has put into a shared folder changes no other file. A
JSON file that is no report of `tickwheel load` is never replaced: the user has named only the page. Each file is
written under another name, and then replaces the earlier one. So an error, such as a full disk, leaves the files of the
earlier report as they are.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.private_file import UnsafePath, check_single_name, open_private

# The keys of the document that `report.build_document` returns.
_KEYS = {"tickwheel", "scenario", "run", "capacity"}
_MODE = 0o644


def document_path(page: Path) -> Path:
    """Return the path of the JSON file that belongs to the page."""
    return page.with_suffix(".json")


def check_files(page: Path) -> None:
    """Check that both files can be written, before a run whose results would otherwise be lost.

    Raises InvalidArgument for a path that cannot be that of a page, and if the JSON file exists and is no report.
    Raises UnsafePath, an OSError, if one of the files is a link, or if other users can change it.
    """
    if not page.parent.is_dir():
        raise InvalidArgument(f"--report {page}: folder {page.parent} does not exist")
    if page.is_dir():
        raise InvalidArgument(f"--report {page} is a folder: add the name of the page, such as {page / 'page.html'}")
    if page.suffix.lower() == ".json":
        raise InvalidArgument(f"--report {page} must name the HTML page: the JSON file is added under the same name")
    for path in (page, document_path(page)):
        with suppress(FileNotFoundError):
            os.close(open_private(path, os.O_WRONLY))
        check_single_name(path)
    # The folder may be read-only, or its file system may make each file accessible to all users.
    descriptor, temporary = _open_temporary(page)
    os.close(descriptor)
    temporary.unlink()
    _check_is_report(page)


def write_files(page: Path, content: str, document: Mapping[str, Any]) -> None:
    """Write the page and its document. Raises as `check_files`, because the files may be others by now.

    If one of the files cannot be written, both are as before.
    """
    text = json.dumps(document, indent=1) + "\n"
    check_files(page)
    with ExitStack() as undo:
        written = []
        for path, contents in ((page, content), (document_path(page), text)):
            descriptor, temporary = _open_temporary(path)
            undo.callback(temporary.unlink, missing_ok=True)
            with open(descriptor, "w", encoding="utf-8") as file:
                _copy_permissions(path, descriptor)
                file.write(contents)
                file.flush()
                os.fsync(descriptor)
            written.append((temporary, path))
        for temporary, path in written:
            # A link that another user has put there by now is replaced, not followed.
            temporary.replace(path)


def _open_temporary(path: Path) -> tuple[int, Path]:
    """Create a file in the folder of ``path``. Return its descriptor and its path."""
    temporary = path.parent / f".tickwheel-{os.urandom(8).hex()}.tmp"
    try:
        return open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), temporary
    except UnsafePath:
        temporary.unlink(missing_ok=True)
        raise


def _copy_permissions(path: Path, descriptor: int) -> None:
    """Give the open file the mode and the group of the file ``path``, if there is one."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(status.st_mode)
    try:
        os.fchown(descriptor, -1, status.st_gid)
    except PermissionError:
        # The user is not in the group of the file. No other group may read the new file.
        mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode)


def _check_is_report(page: Path) -> None:
    path = document_path(page)
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return
    # A run that was killed while it wrote can have left an empty file.
    if not stored:
        return
    try:
        document = decode_json(stored)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.keys() >= _KEYS:
        return
    raise InvalidArgument(
        f"--report {page} also writes {path}, which exists and is no report of `tickwheel load`: use another name, or"
        f" move {path.name}"
    )
