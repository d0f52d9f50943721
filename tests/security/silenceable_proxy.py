"""A proxy that can drop all data without closing its connections."""

import socket
import threading
from contextlib import suppress
from typing import Self


class SilenceableProxy:
    """Forwards connections to ``target`` until `silence`. Use it in a ``with`` statement."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._to = host, int(port)
        self._open: list[socket.socket] = []
        self._silent = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._listening, *self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def silence(self) -> None:
        """Drop all further data in both directions."""
        self._silent.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._greet(near)
                far = socket.create_connection(self._to)
                self._open += near, far
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _greet(self, near: socket.socket) -> None:
        """Exchange the data that precedes the connection to the target: none."""

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not self._silent.is_set():
                    sink.sendall(data)
