"""What one process of the service takes on at once: connections and calls, as the options of its gRPC server."""

import logging
import resource
from typing import Final

from tickwheel import limits

# Connections to the servers of Redis, files, what Python has open.
_OTHER_FILES: Final = 512
# Who is gone without a word, with its host or the network, is noticed within the sum.
PING_MS = 30_000
PONG_MS = 10_000
_log = logging.getLogger("tickwheel.service")


def options(connections: int, waiting: int, *, shares_port: bool) -> list[tuple[str, int]]:
    """For the server of this process."""
    return [
        # Another process on the port would share its clients unasked.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_allowed_incoming_connections", connections),
        # Of one connection. More than all may have, so that a call too many is refused: beyond this calls wait in their
        # client without a word, those that complete behind those that wait for messages.
        ("grpc.max_concurrent_streams", max_concurrent_calls(waiting) + limits.OTHER_CALLS),
        ("grpc.max_receive_message_length", limits.REQUEST_BYTES),
        # Who connects and says nothing.
        ("grpc.server_handshake_timeout_ms", 20_000),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PONG_MS),
        # The library waits for the answer to a ping as long as the longer of the two says.
        ("grpc.http2.ping_timeout_ms", PONG_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients do the same while they wait. By default that is an abuse, and their connection is closed for it.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]


def max_concurrent_calls(waiting: int) -> int:
    """How many calls may be under way, with those that wait. Beyond it they are refused before they are read."""
    return waiting + limits.OTHER_CALLS


def raise_fd_limit(connections: int) -> int:
    """Let this process have so many connections; fewer where the system allows no more, which is logged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        connections = max(allowed - _OTHER_FILES, allowed // 2)
        _log.warning("at most %d connections: the system allows this process %d open files", connections, allowed)
    return connections
