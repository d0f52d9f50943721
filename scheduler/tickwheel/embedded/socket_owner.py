"""Recognizes the embedded server of a data directory by the path of its socket."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tickwheel.embedded.server import SOCKET_FOLDER, SOCKET_NAME


def find_data_dir(url: str) -> Path | None:
    """Return the data directory whose embedded server has this ``unix://`` URL; None for any other server.

    The shards have a mark of the embedded server, too, but not before an event process of this version has claimed
    them.
    """
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return None
    try:
        # Programs may use a symbolic link to the folder of the socket.
        socket = Path(unquote(parts.path)).resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    data_dir = socket.parent.parent
    is_embedded = (socket.name, socket.parent.name) == (SOCKET_NAME, SOCKET_FOLDER)
    return data_dir if is_embedded and (data_dir / "programs.lock").exists() else None
