"""URLs of ZooKeeper elections, as zk://host:2181,host2,[::1]:2182/path, and the session time-out."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from tickwheel.election.lease_options import LEASE, SESSION_TIMEOUT, check_session_timeout
from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview, preview_url

DEFAULT_PATH: Final = "/tickwheel"
DEFAULT_PORT: Final = 2181
_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, slots=True)
class ZooKeeperUrl:
    """The servers and the path of an election.

    ``hosts`` are written host:port. ``path`` is the parent of all nodes of the election. If a process is killed or cut
    off, other processes take over its shards after ``session_timeout_s``, which the servers may raise or lower.
    """

    hosts: tuple[str, ...]
    path: str = DEFAULT_PATH
    session_timeout_s: float = SESSION_TIMEOUT.total_seconds()

    @classmethod
    def parse(cls, url: str, session_timeout: timedelta = SESSION_TIMEOUT) -> Self:
        """Parse a URL. The default port is 2181, the default path /tickwheel. Raises InvalidArgument."""
        if not isinstance(url, str) or not url.startswith("zk://"):
            raise InvalidArgument(
                f"an election is {LEASE}, or has the form zk://host:2181,host2,host3/path, not {preview_url(url)}"
            )
        if "@" in url or "?" in url:
            # The URL is not quoted, because it can contain a password.
            raise InvalidArgument(
                "an election URL has no user, password or options: leave out the parts with '@' or '?'"
            )
        check_session_timeout(session_timeout)
        servers, slash, rest = url.removeprefix("zk://").partition("/")
        path = f"/{rest.rstrip('/')}" if rest.strip("/") else DEFAULT_PATH
        if not _PATH.fullmatch(path) or {".", "..", "zookeeper"} & set(path.split("/")):
            raise InvalidArgument(
                f"the path {preview(slash + rest)} of {preview(url)} is not a valid path of ZooKeeper nodes: write"
                " names of letters, digits, '.', '_' and '-', separated by '/'; '.', '..' and 'zookeeper' are not"
                " allowed"
            )
        hosts = tuple(_parse_host(host, url) for host in servers.split(","))
        return cls(hosts, path, session_timeout.total_seconds())

    def __str__(self) -> str:
        return f"zk://{','.join(self.hosts)}{self.path}"


def _parse_host(text: str, url: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65_536:
        raise InvalidArgument(
            f"{preview(text)} in {preview(url)} is not the address of a ZooKeeper server: write host or host:port,"
            " separated by ',', and IPv6 as [::1]:2181"
        )
    return f"{match['host']}:{match['port'] or DEFAULT_PORT}"
