"""Where a server listens."""

import ipaddress
import socket
from contextlib import suppress
from threading import Event
from typing import Final

from tickwheel.errors import InvalidArgument

_LOOK_S: Final = 0.05


def parse_address(text: str, what: str, *, shared: bool = False) -> tuple[str, int]:
    """Host and port of ``host:port``. Raises InvalidArgument where that is none, or nothing can listen there.

    One that is ``shared`` is another process's, which has seen to that.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise InvalidArgument(f"{what} must be HOST:PORT, as 127.0.0.1:7400, not {text!r:.80}")
    address = host.strip("[]"), int(port)
    if shared:
        return address
    try:
        [(family, *_), *_] = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        socket.create_server(address, family=family).close()
    except OSError as error:
        raise InvalidArgument(f"{what}: nothing can listen on {text}: {error}") from error
    return address


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach it."""
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)


def wait_until_served(host: str, port: int, stopping: Event) -> None:
    """Wait until somebody answers there, or until it is to stop."""
    while not stopping.wait(_LOOK_S):
        with suppress(OSError), socket.create_connection((host, port), _LOOK_S):
            return
