"""A proxy that can stop to forward, without an end of any connection noticing: a network that swallows everything."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class StallingProxy:
    """Listens at ``address`` on this host and forwards to a server, named by the URL of its unix socket or port."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Forward nothing from now on, in no direction; connections are accepted."""
        self._passes.clear()

    def go_on(self) -> None:
        """Forward what was kept back, and everything from now on."""
        self._passes.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passes.set()
        for each in self._open:
            # Not only closed: a thread may be in a call on it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._connect()
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._target.scheme == "unix":
            found = socket.socket(socket.AF_UNIX)
            found.connect(self._target.path)
            return found
        return socket.create_connection((self._target.hostname or "", self._target.port or 0))

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                self._passes.wait()
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_RDWR)
