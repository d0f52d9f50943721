"""Servers of other machines without TLS. If TLS is required, no connection to such a server is opened.

A cluster names its servers itself (CLUSTER SLOTS, MOVED, ASK), so the check of the client's URL is not enough.
"""

import os

from redis.connection import parse_url

from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.redis.topology import SINGLE
from tickwheel.redis.url import node_url, redact
from tickwheel.runtime.loopback import is_loopback_name

# If this environment variable is 1, connections to other machines need TLS.
VARIABLE = "TICKWHEEL_REQUIRE_TLS"


def requires_tls() -> bool:
    """Return whether connections to other machines need TLS. Raises InvalidArgument if the variable is invalid."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise InvalidArgument(f"{VARIABLE} must be 1, or be 0 or empty for connections without TLS, not {value!r:.80}")
    return value == "1"


def exposed_host(url: str, server: str = SINGLE) -> str | None:
    """Return the host of the server if data would be sent to another machine without TLS, or None.

    ``server`` is the server of a cluster with this URL; the empty name stands for the server of the URL.
    """
    if url.partition("://")[0] == "unix" or url.startswith("rediss"):
        return None
    address = parse_url(node_url(url, server))  # type: ignore[no-untyped-call]  # redis-py has no type here
    # redis-py connects to localhost if the URL has no host.
    host = str(address.get("host", "localhost"))
    return None if is_loopback_name(host) else host


def encrypted_scheme(url: str) -> str:
    """Return the scheme of the URL with TLS."""
    return url.partition("://")[0].replace("redis", "rediss")


def check_server(url: str, server: str) -> None:
    """Check a server before the first connection. ``url`` is the client's URL.

    Raises TickwheelError if TICKWHEEL_REQUIRE_TLS is 1 and the server is on another machine and has no TLS.
    """
    if not requires_tls() or exposed_host(url, server) is None:
        return
    named = f"{server!r:.300}, which the cluster of {redact(url)} names," if server else redact(url)
    raise TickwheelError(
        f"the server {named} would receive data without TLS, and {VARIABLE} is 1: use {encrypted_scheme(url)}://, or"
        " servers on this machine"
        + (", each with a loopback address as its cluster-announce-ip or cluster-announce-hostname" if server else "")
    )
