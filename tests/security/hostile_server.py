"""A Redis server that turns hostile: a proxy that answers commands itself, with bytes that the test chooses."""

import socket
import threading
from contextlib import suppress
from typing import Any

import hiredis

# Answers of another type, length or protocol than those of Redis and the scripts.
SHAPES: dict[str, bytes] = {
    "no script": b"-NOSCRIPT No matching script.\r\n",
    "nil": b"$-1\r\n",
    "nil array": b"*-1\r\n",
    "integer": b":7\r\n",
    "huge integer": b":9223372036854775807\r\n",
    "empty text": b"$0\r\n\r\n",
    "text": b"+hello\r\n",
    "not UTF-8": b"$4\r\n\xff\xfe\xfd\xfc\r\n",
    "many bytes": b"$300\r\n" + b"\x7f" * 300 + b"\r\n",
    "empty array": b"*0\r\n",
    "array of nil": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    "array of bytes": b"*3\r\n$2\r\n\xff\xff\r\n:1\r\n$0\r\n\r\n",
    "nested arrays": b"*1\r\n" * 50 + b":1\r\n",
    "deeply nested arrays": b"*1\r\n" * 100_000 + b":1\r\n",
    "error": b"-ERR hello\r\n",
    "error without text": b"-\r\n",
    "moved": b"-MOVED nonsense\r\n",
    "moved far": b"-MOVED 99999 127.0.0.1:1\r\n",
    "code without fields": b"-IDCONFLICT\r\n",
    "not UTF-8 error": b"-\xff\xfe\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "map": b"%1\r\n+a\r\n:1\r\n",
}


class HostileServer:
    """Forwards commands to the Unix socket ``target`` until `turn`. Use it in a ``with`` statement."""

    def __init__(self, target: str) -> None:
        self._to = target
        self._open: list[socket.socket] = []
        self._answer: bytes | None = None
        self._good = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> "HostileServer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._listening, *self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def turn(self, answer: bytes | None, good: int = 0) -> None:
        """Answer all commands with these bytes, after ``good`` good answers; with None, be a good server again."""
        self._good, self._answer = good, answer

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                self._open += near, far
                threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        commands = hiredis.Reader()
        with suppress(OSError, hiredis.HiredisError):
            while data := near.recv(65_536):
                commands.feed(data)
                while (command := commands.gets()) is not False:
                    near.sendall(self._answer_to(command, far))

    def _answer_to(self, command: list[bytes], far: socket.socket) -> bytes:
        if self._answer is not None:
            if self._good <= 0:
                return self._answer
            self._good -= 1
        far.sendall(hiredis.pack_command(tuple[Any](command)))
        answers, received = hiredis.Reader(), b""
        while True:
            data = far.recv(65_536)
            if not data:
                raise OSError("the server has closed the connection")
            received += data
            answers.feed(data)
            # `hiredis` returns an error as a value, and raises an error for bytes outside the protocol.
            if answers.gets() is not False:
                return received
