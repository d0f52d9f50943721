"""The URL of a server: what is understood, how it is shown, how it reaches a child process."""

import hashlib
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from redis.connection import ConnectionPool

from tickwheel import arguments
from tickwheel.errors import InvalidArgument

# The environment of a process, unlike its arguments, is for its own user to read.
VARIABLE = "TICKWHEEL_URL"
SCHEMES = ("redis", "rediss", "unix")
# Of the many that redis-py knows those that are about the server. How a connection is used is ours to say.
_OPTIONS = {"db", "username", "password", "client_name"}
_TLS_OPTIONS = {
    f"ssl_{name}" for name in ("ca_certs", "ca_path", "ca_data", "cert_reqs", "certfile", "keyfile", "password")
} | {"ssl_check_hostname"}
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
    parts = urlsplit(url)
    # An option's name may be written with escapes, as the library that reads it understands them.
    options = [option.partition("=") for option in parts.query.split("&")]
    query = "&".join(
        f"{name}=***" if "password" in unquote(name).lower() else f"{name}{equals}{value}"
        for name, equals, value in options
    )
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    shown = f"{parts.scheme}://{name}{colon}{'***' if colon else ''}{at}{host}{parts.path}"
    return f"{shown}?{query}" if query else shown


def default_lock(url: str, namespace: str) -> Path:
    """The lock file of a server and namespace on this host, where no data directory holds it."""
    tag = hashlib.sha256(f"{url}\0{namespace}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{tag}.lock"


def _is_understood(url: str) -> bool:
    try:
        arguments.text("url", url, _BYTES, nul=False)
        parts = urlsplit(url)
        names = {option.partition("=")[0] for option in parts.query.split("&") if option}
        if not names <= _OPTIONS | (_TLS_OPTIONS if parts.scheme == "rediss" else set()):
            return False
        # A '#' or '?' that stands unescaped in a password cuts the URL short: then it names another server.
        if "#" in url or not all("=" in option for option in parts.query.split("&") if parts.query):
            return False
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
