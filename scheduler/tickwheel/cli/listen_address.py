"""Addresses of listening sockets: parsing, formatting, and checks."""

import re
import socket
from contextlib import suppress
from threading import Event
from typing import Final

from tickwheel.errors import InvalidArgument

_POLL_INTERVAL_S: Final = 0.05


def parse_address(text: str, use: str, cannot: str, *, min_port: int = 0, shared: bool = False) -> tuple[str, int]:
    """Return host and port of ``host:port``, after a check that the address is free.

    Raises InvalidArgument: the text begins with ``use`` if the syntax is wrong, and with ``cannot`` if no socket can
    listen on the address. A ``shared`` address is not checked, because another process has reserved it.
    """
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not min_port <= int(port) <= 65_535:
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
    """Return the text that `parse_address` parses."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def wait_until_served(host: str, port: int, stopping: Event) -> None:
    """Wait until a server accepts connections at the address, or until ``stopping`` is set."""
    while not stopping.wait(_POLL_INTERVAL_S):
        with suppress(OSError), socket.create_connection((host, port), _POLL_INTERVAL_S):
            return
