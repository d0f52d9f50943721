"""URLs of Redis and Valkey servers and clusters: validation, the servers that they name, and forms without secrets."""

import re
from urllib.parse import unquote, urlsplit

from redis.connection import ConnectionPool
from redis.exceptions import RedisError

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.redis.topology import SINGLE

# The environment variable that passes the URL to a child process. Other users of the host can read the arguments of a
# process, but not its environment.
VARIABLE = "TICKWHEEL_URL"
# Maps the scheme of a cluster's URL to the scheme for the URL of one server.
_CLUSTERS = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
SCHEMES = ("redis", "rediss", "unix", *_CLUSTERS)
_PORT = 6379
# The allowed options: those of redis-py that concern the server. Tickwheel sets the options of the connection itself.
_OPTIONS = {"db", "username", "password", "client_name"}
_TLS_OPTIONS = {
    f"ssl_{name}" for name in ("ca_certs", "ca_path", "ca_data", "cert_reqs", "certfile", "keyfile", "password")
} | {"ssl_check_hostname"}
_BYTES = 4_096


def validate_redis_url(url: str) -> None:
    """Raise InvalidArgument if redis-py would reject the URL, or would ignore or misread its server or database."""
    part = _find_invalid_part(url)
    if part is not None:
        _check_servers(url)
        # Neither the URL nor the text of its invalid part is in the error: both may contain a password, or a part of
        # one.
        raise InvalidArgument(
            f"url has an invalid {part}; if a user name or a password has special characters, escape them, as '%40'"
            " for '@'"
        )
    if is_cluster_url(url) and not _names_database_0(url):
        raise InvalidArgument("a cluster has only database 0: leave the path and the option 'db' out of its url")


def servers(url: str) -> list[str]:
    """Return the ``host:port`` of each server that the URL of a cluster names; the empty name for a single server."""
    if not is_cluster_url(url):
        return [SINGLE]
    nodes = [node.strip() for node in urlsplit(url).netloc.rpartition("@")[2].split(",")]
    return [node if re.search(r":[0-9]*$", node.rpartition("]")[2]) else f"{node}:{_PORT}" for node in nodes]


def node_url(url: str, node: str) -> str:
    """Return the URL of one server of a cluster, with its user and options; ``url`` itself if it names no cluster."""
    if node == SINGLE:
        return url
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    scheme = _CLUSTERS[parts.scheme]
    # The part after the servers is copied unchanged, so that validation detects errors in it.
    return f"{scheme}://{user}{at}{node}{url.partition('://')[2].removeprefix(parts.netloc)}"


def redact(url: str) -> str:
    """Return the URL for logs: ``***`` replaces passwords, before the host and among the options."""
    parts = urlsplit(url)
    # redis-py also accepts escapes in the name of an option.
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
    """Return a redacted URL with only the first server of a cluster, for log lines."""
    return re.sub(r"^(rediss?\+cluster://[^,/?]*),[^/?]*", r"\1,…", redacted_url)


def _check_servers(url: str) -> None:
    """Raise InvalidArgument if the URL of a cluster names a server without a host, or if a port is invalid."""
    if "@" in url:
        # The part that is parsed as a port may be an unescaped password.
        return
    try:
        named = [urlsplit(node_url(url, server)) for server in servers(url)]
        hosts = [parts.hostname for parts in named]
    except ValueError:
        return
    if is_cluster_url(url) and not all(hosts):
        raise InvalidArgument("url lacks a host: the url of a cluster is redis+cluster://host:port,host:port")
    for parts in named:
        try:
            _ = parts.port
        except ValueError:
            # The error of Python quotes the port, which is a password if the URL lacks its host.
            raise InvalidArgument("each port in url must be a number up to 65535, for example host:6379") from None


def is_cluster_url(url: str) -> bool:
    """Whether the URL names a Redis Cluster."""
    return url.partition("://")[0] in _CLUSTERS


def _names_database_0(url: str) -> bool:
    parts = urlsplit(url)
    databases = [
        value for name, _, value in (option.partition("=") for option in parts.query.split("&")) if name == "db"
    ]
    return parts.path in ("", "/", "/0") and set(databases) <= {"0"}


def _find_invalid_part(url: str) -> str | None:
    """Return the first invalid part of a URL, with the values that it may have; None if the URL is valid."""
    try:
        validation.text("url", url, _BYTES, nul=False)
        named = servers(url)
    except ValueError:
        return f"host, or more than {_BYTES} bytes, or a character that is not Unicode"
    parts = ("host" if server.startswith(":") else _find_invalid_part_of_one(node_url(url, server)) for server in named)
    return next((part for part in parts if part is not None), None)


def _find_invalid_part_of_one(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        # Python encodes the host as IDNA when it connects. The encoding raises ValueError for an invalid host.
        (parts.hostname or "localhost").encode("idna")
    except ValueError:
        return "host"
    try:
        _ = parts.port
    except ValueError:
        return "port: it must be a number up to 65535"
    allowed = _OPTIONS | (_TLS_OPTIONS if parts.scheme == "rediss" else set())
    option = f"option: allowed are {', '.join(sorted(allowed))}, each with a valid value"
    names = {option.partition("=")[0] for option in parts.query.split("&") if option}
    # An unescaped '#' or '?' in a password ends the host part early, so that the URL names another server.
    if not names <= allowed or "#" in url or not all("=" in text for text in parts.query.split("&") if parts.query):
        return option
    if parts.scheme == "unix":
        # redis-py ignores a host. It is a part of an unescaped password, or of a path without its leading slash.
        if not parts.path or (parts.netloc and not parts.netloc.endswith("@")):
            return "path: the url of a socket is unix:///absolute/path"
    # If the path is not a number, redis-py would use database 0.
    elif not re.fullmatch(r"/?|/[0-9]{1,5}", parts.path):
        return "database: the path after the host must be a number, as in redis://host:6379/0, or empty"
    try:
        ConnectionPool.from_url(url).make_connection()
    except (TypeError, ValueError, RedisError):
        return option
    return None
