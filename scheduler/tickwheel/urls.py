"""The URL of a server: what is understood, how it is shown, how it reaches a child process."""

import hashlib
import re
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from redis.connection import ConnectionPool

from tickwheel import arguments
from tickwheel.errors import InvalidArgument

# The environment of a process, unlike its arguments, is for its own user to read.
VARIABLE = "TICKWHEEL_URL"
SCHEMES = ("redis", "rediss", "unix")
_BYTES = 4_096


def check(url: object) -> None:
    """Raises InvalidArgument for a URL that no connection could be made from, or another than it says."""
    if not isinstance(url, str) or url.partition("://")[0] not in SCHEMES:
        raise InvalidArgument(
            f"url must start with {', '.join(f'{scheme}://' for scheme in SCHEMES)} or be left out for the"
            f" embedded server, not {arguments.shown(url)}"
        )
    if not _is_understood(url):
        # Without the URL, nor what was wrong with it: either may hold a password, or a piece of one.
        raise InvalidArgument(
            "url has a host, port, database, path or option that is not understood; the special characters of a"
            " user name or password are written as in '%40' for '@'"
        )


def without_password(url: str) -> str:
    """As it may stand in a log: the password, before the host or among the options, is ``***``."""
    shown = re.sub(r"(?<=[?&]password=)[^&#]*", "***", url)
    parts = urlsplit(shown)
    if parts.password is None:
        return shown
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")).geturl()


def default_lock(url: str, namespace: str) -> Path:
    """The lock file of a server and namespace on this host, where no data directory holds it."""
    tag = hashlib.sha256(f"{url}\0{namespace}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{tag}.lock"


def _is_understood(url: str) -> bool:
    try:
        arguments.text("url", url, _BYTES, nul=False)
        parts = urlsplit(url)
        if parts.scheme == "unix":
            named = bool(parts.path)
        else:
            # As redis-py looks it up. A path that is no number would mean another database than the one it names.
            (parts.hostname or "localhost").encode("idna")
            named = re.fullmatch(r"/?|/[0-9]{1,5}", parts.path) is not None
        ConnectionPool.from_url(url).make_connection()
    except (TypeError, ValueError):
        return False
    return named
