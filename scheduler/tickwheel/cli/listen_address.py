"""Where a command listens."""

import ipaddress
import socket
from contextlib import suppress
from threading import Event
from typing import Final

from tickwheel.errors import InvalidArgument

_POLL_INTERVAL_S: Final = 0.05


def parse_address(text: str, use: str, cannot: str, *, min_port: int = 0, shared: bool = False) -> tuple[str, int]:
    """Host and port of ``host:port``. Raises InvalidArgument, which begins with ``use``, where that is none; and with
    ``cannot`` where nothing can listen there.

    One that is ``shared`` is another process's, which has seen to that.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not min_port <= int(port) <= 65_535:
        raise InvalidArgument(f"{use}, not {text!r:.80}")
    address = host.strip("[]"), int(port)
    if shared:
        return address
    try:
        [(family, *_), *_] = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        socket.create_server(address, family=family).close()
    except OSError as error:
        raise InvalidArgument(f"{cannot} {text}: {error}") from error
    return address


def format_address(host: str, port: int) -> str:
    """The address as one text; what `parse_address` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach it."""
    try:
        addresses = {item[4][0] for item in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(item).partition("%")[0]).is_loopback for item in addresses)


def wait_until_served(host: str, port: int, stopping: Event) -> None:
    """Wait until somebody answers there, or until it is to stop."""
    while not stopping.wait(_POLL_INTERVAL_S):
        with suppress(OSError), socket.create_connection((host, port), _POLL_INTERVAL_S):
            return
