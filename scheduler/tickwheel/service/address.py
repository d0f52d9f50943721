"""Where a server listens."""

import ipaddress
import socket

from tickwheel.errors import InvalidArgument


def parse_address(text: str, what: str) -> tuple[str, int]:
    """Host and port of ``host:port``. Raises InvalidArgument where that is none, or nothing can listen there."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise InvalidArgument(f"{what} must be HOST:PORT, as 127.0.0.1:7400, not {text!r:.80}")
    address = host.strip("[]"), int(port)
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
