"""Limits of one process of the service: its connections and calls, as options of its gRPC server."""

import logging
import resource
from typing import Final

from tickwheel import limits

# File descriptors that are not connections of clients: connections to Redis servers, files, and Python's own.
_OTHER_FILES: Final = 512
# If the host or the network of a client fails, the service detects this within the sum of these two times.
PING_MS = 30_000
PONG_MS = 10_000
_log = logging.getLogger("tickwheel.service")


def options(connections: int, waiting: int, *, shares_port: bool) -> list[tuple[str, int]]:
    """Return the options for ``connections`` connections and ``waiting`` waiting calls."""
    return [
        # With the value 0, no second process can listen on the port and silently get some of the clients.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_allowed_incoming_connections", connections),
        # The maximum number of calls on one connection. Calls above this limit are not rejected: they queue in the
        # client, without an error. For example, a Complete call would queue behind waiting Dequeue calls. So the limit
        # is higher than the limits of the whole process (`call_limits`), above which the service rejects calls.
        ("grpc.max_concurrent_streams", waiting + 2 * limits.OTHER_CALLS),
        # At this limit, the library cancels calls of one client because of another. By default, the library cancels
        # some calls above 1,000 and all calls above 3,000.
        ("grpc.server.max_pending_requests", limits.UNACCEPTED_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", limits.UNACCEPTED_CALLS),
        ("grpc.max_receive_message_length", limits.REQUEST_BYTES),
        # Only the algorithm 0, which does not compress. A compressed request of 4 KB could have 4 MiB, and the library
        # would copy them before the service can check the size.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # With probes, the windows grow, and the library receives whole requests before the service reads them (see
        # `Arrivals`). Without probes, a request that the service does not read yet takes at most 64 KiB.
        ("grpc.http2.bdp_probe", 0),
        # Closes connections of clients that connect and send nothing.
        ("grpc.server_handshake_timeout_ms", 20_000),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PONG_MS),
        # The library waits for the answer to a ping until both this timeout and the one above are over.
        ("grpc.http2.ping_timeout_ms", PONG_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # The clients of Tickwheel ping while they wait. By default, the library treats frequent pings as abuse and
        # closes the connection.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]


def raise_fd_limit(connections: int) -> int:
    """Raise this process's limit of open files to serve ``connections`` connections.

    Return the number of connections that the process can serve. Log a warning if it is lower than ``connections``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        connections = max(allowed - _OTHER_FILES, allowed // 2)
        _log.warning(
            "the service accepts %d connections at most, because the system allows this process %d open files; raise"
            " the limit of open files to accept more",
            connections,
            allowed,
        )
    return connections
