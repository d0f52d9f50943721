"""Several processes of the service on one port. The kernel distributes the connections among them (SO_REUSEPORT)."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.child_process import ChildProcess
from tickwheel.service.shared_quota import SharedQuotas

# A process is killed this long after the end of its drain time.
_KILL_AFTER_S: Final = 5.0


@contextmanager
def reserve_port(host: str, port: int) -> Iterator[int]:
    """Reserve a port in the ``with`` block, and yield its number. Only processes of the same user can listen on it.

    Raises InvalidArgument if the system cannot share ports, or if the address is not usable.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidArgument("several processes cannot share a port on this system: omit --processes")
    [(family, kind, number, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # The socket is bound but does not listen, so the kernel gives it no connections.
    with socket.socket(family, kind, number) as placeholder:
        placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            placeholder.bind(address)
        except OSError as error:
            raise InvalidArgument(f"the service cannot listen on {host}:{port}: {error}") from error
        yield placeholder.getsockname()[1]


@contextmanager
def run_processes(
    command: Sequence[str],
    environment: Mapping[str, str],
    count: int,
    drain_s: float,
    sockets: Sequence[Path] | None = None,
    quotas: SharedQuotas | None = None,
) -> Iterator[list[ChildProcess]]:
    """Run ``count`` processes of the command in the ``with`` block, and yield them. Restart a process that dies. Stop
    all processes concurrently at the end.

    If ``sockets`` is set, each process serves its metrics on one of these Unix sockets. The processes share ``quotas``.
    """
    children = []
    for n in range(count):
        own = [] if sockets is None else [f"--figures={sockets[n]}"]
        inherited = []
        if quotas is not None:
            own.append(f"--quotas={quotas.fd},{count},{n}")
            inherited.append(quotas.fd)
        children.append(
            ChildProcess(
                *([*command, *own], environment, f"process {n} of the service", drain_s + _KILL_AFTER_S), inherited
            )
        )
    try:
        yield children
    finally:
        with ThreadPoolExecutor(count) as stopping:
            list(stopping.map(ChildProcess.stop, children))
