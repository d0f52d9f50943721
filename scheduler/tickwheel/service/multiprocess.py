"""Several processes of the service on one port: the kernel shares the connections out among them (SO_REUSEPORT)."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.child_process import ChildProcess

# Beyond the time that calls are given, before one is killed.
_KILL_AFTER_S: Final = 5.0


@contextmanager
def reserve_port(host: str, port: int) -> Iterator[int]:
    """A port that processes of this user may share, ours as long as this lasts. Raises InvalidArgument."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidArgument("this system shares no port among processes: leave --processes out")
    [(family, kind, number, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Bound and not listening: it takes no connection.
    with socket.socket(family, kind, number) as placeholder:
        placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            placeholder.bind(address)
        except OSError as error:
            raise InvalidArgument(f"nothing can listen on {host}:{port}: {error}") from error
        yield placeholder.getsockname()[1]


@contextmanager
def run_processes(
    command: Sequence[str],
    environment: Mapping[str, str],
    count: int,
    drain_s: float,
    sockets: Sequence[Path] | None = None,
) -> Iterator[list[ChildProcess]]:
    """So many processes of the command, each started again where it dies; told to end, all at once, at the end.

    On ``sockets``, one each, they tell their figures.
    """
    children = []
    for n in range(count):
        own = [] if sockets is None else [f"--figures={sockets[n]}"]
        children.append(
            ChildProcess([*command, *own], environment, f"process {n} of the service", drain_s + _KILL_AFTER_S)
        )
    try:
        yield children
    finally:
        with ThreadPoolExecutor(count) as stopping:
            list(stopping.map(ChildProcess.stop, children))
