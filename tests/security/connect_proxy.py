"""An HTTP proxy, as companies have one: it tunnels CONNECT requests, and records them."""

import socket

from tests.security.silenceable_proxy import SilenceableProxy


class ConnectProxy(SilenceableProxy):
    """Tunnels each connection to ``target``, whatever host the client names. Use it in a ``with`` statement.

    ``requests`` has the first line of each request.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.requests: list[str] = []
        self.url = f"http://{self.target}"

    def _greet(self, near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (byte := near.recv(1)):
            head += byte
        self.requests.append(head.decode().partition("\r\n")[0])
        near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
