"""The URL of a server or cluster: what is understood, how it is shown, how it reaches a child process."""

import hashlib
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from redis.connection import ConnectionPool

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.redis.topology import SINGLE

# The environment of a process, unlike its arguments, is for its own user to read.
VARIABLE = "TICKWHEEL_URL"
# How each server of a cluster is reached.
_CLUSTERS = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
SCHEMES = ("redis", "rediss", "unix", *_CLUSTERS)
_PORT = 6379
# Of the many that redis-py knows those that are about the server. How a connection is used is ours to say.
_OPTIONS = {"db", "username", "password", "client_name"}
_TLS_OPTIONS = {
    f"ssl_{name}" for name in ("ca_certs", "ca_path", "ca_data", "cert_reqs", "certfile", "keyfile", "password")
} | {"ssl_check_hostname"}
_BYTES = 4_096


def validate_redis_url(url: str) -> None:
    """Raises InvalidArgument for a URL that no connection could be made from, or another than it says."""
    if not _is_understood(url):
        _check_servers(url)
        # Without the URL, nor what was wrong with it: either may hold a password, or a piece of one.
        raise InvalidArgument(
            "url has a host, port, database, path or option that is not understood; the special characters of a"
            " user name or password are written as in '%40' for '@'"
        )
    if _is_cluster(url) and not _names_database_0(url):
        raise InvalidArgument("a cluster has only database 0: leave the path and the option 'db' out of its url")


def servers(url: str) -> list[str]:
    """The ``host:port`` of each server of a cluster that its URL names; for a single server the empty name."""
    if not _is_cluster(url):
        return [SINGLE]
    nodes = [node.strip() for node in urlsplit(url).netloc.rpartition("@")[2].split(",")]
    return [node if re.search(r":[0-9]*$", node.rpartition("]")[2]) else f"{node}:{_PORT}" for node in nodes]


def node_url(url: str, node: str) -> str:
    """The URL of one server of a cluster, with the user and options of the cluster's; a single server's as it is."""
    if node == SINGLE:
        return url
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    scheme = _CLUSTERS[parts.scheme]
    # What stands behind the servers goes along as it is, so that nothing that is wrong in it passes for right.
    return f"{scheme}://{user}{at}{node}{url.partition('://')[2].removeprefix(parts.netloc)}"


def redact(url: str) -> str:
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
    redacted = f"{parts.scheme}://{name}{colon}{'***' if colon else ''}{at}{host}{parts.path}"
    return f"{redacted}?{query}" if query else redacted


def first_node_only(redacted_url: str) -> str:
    """What `redact` returns, without the servers of a cluster after the first: for a log."""
    return re.sub(r"^(rediss?\+cluster://[^,/?]*),[^/?]*", r"\1,…", redacted_url)


def default_lock(url: str, namespace: str) -> Path:
    """The lock file of a server and namespace on this host, where no data directory holds it."""
    tag = hashlib.sha256(f"{url}\0{namespace}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{tag}.lock"


def _check_servers(url: str) -> None:
    """Raises InvalidArgument where a cluster names a server without host, or a port is none."""
    if "@" in url:
        # What looks like a port may be a password that is not escaped.
        return
    try:
        named = [urlsplit(node_url(url, server)) for server in servers(url)]
        hosts = [parts.hostname for parts in named]
    except ValueError:
        return
    if _is_cluster(url) and not all(hosts):
        raise InvalidArgument("url names no host where one must be: a cluster's is redis+cluster://host:port,host:port")
    for parts in named:
        try:
            _ = parts.port
        except ValueError as error:
            raise InvalidArgument("a port in url is none: it is a number up to 65535, as in host:6379") from error


def _is_cluster(url: str) -> bool:
    return url.partition("://")[0] in _CLUSTERS


def _names_database_0(url: str) -> bool:
    parts = urlsplit(url)
    databases = [
        value for name, _, value in (option.partition("=") for option in parts.query.split("&")) if name == "db"
    ]
    return parts.path in ("", "/", "/0") and set(databases) <= {"0"}


def _is_understood(url: str) -> bool:
    try:
        named = servers(url)
        return all(not server.startswith(":") and _is_one_server(node_url(url, server)) for server in named)
    except ValueError:
        return False


def _is_one_server(url: str) -> bool:
    try:
        validation.text("url", url, _BYTES, nul=False)
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
