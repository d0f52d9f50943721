"""HTTP/2 frames made by hand, for requests that no library sends."""

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_WINDOW_MAX = 2**31 - 1
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_CANCEL = 8
_INITIAL_WINDOW = 4
# Size of the head of a frame.
_HEAD = 9


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def headers(method: str, more: Mapping[bytes, bytes] = MappingProxyType({})) -> bytes:
    """Return the headers of a call. ``method`` is a path, or the name of a method of MessageService."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": (method if "/" in method else f"/tickwheel.v1.MessageService/{method}").encode(),
        b":authority": b"x",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
        **more,
    }
    return b"".join(map(_literal, fields, fields.values()))


def message(request: Any) -> bytes:
    """Return a message as gRPC encodes it in a data frame."""
    body: bytes = request.SerializeToString()
    return b"\0" + struct.pack(">I", len(body)) + body


def unlimited_windows() -> bytes:
    """Return frames that open the flow-control windows of the connection and of each stream as far as possible."""
    settings = frame(4, 0, 0, struct.pack(">HI", 4, _WINDOW_MAX))
    return settings + frame(8, 0, 0, struct.pack(">I", _WINDOW_MAX - 65_535))


class Upload:
    """One call on a connection of its own, which sends its request as far as the windows of the server allow."""

    def __init__(self, target: str, path: str, request: bytes, token: str = "") -> None:
        host, _, port = target.rpartition(":")
        fields = {b"authorization": f"Bearer {token}".encode()} if token else {}
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(PREFACE + SETTINGS + frame(_HEADERS, 4, 1, headers(path, fields)))
        self._socket.setblocking(False)
        self._received = b""
        self._request = request
        # By stream; 0 is the connection.
        self._windows = {0: 65_535, 1: 65_535}
        self._initial = 65_535
        self.sent = 0
        """Number of bytes that the connection has accepted."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def advance(self) -> None:
        """Handle the frames that the server has sent, and send what it allows."""
        with suppress(BlockingIOError):
            self._received += self._socket.recv(65_536)
        while len(self._received) >= _HEAD and len(self._received) >= _HEAD + (size := self._size):
            kind, flags, stream = struct.unpack_from(">BBI", self._received, 3)
            self._handle(kind, flags, stream, self._received[_HEAD : _HEAD + size])
            self._received = self._received[_HEAD + size :]
        while (count := min(16_384, *self._windows.values(), len(self._request) - self.sent)) > 0:
            self._send(frame(_DATA, 0, 1, self._request[self.sent : self.sent + count]))
            self.sent += count
            self._windows = {stream: window - count for stream, window in self._windows.items()}

    @property
    def _size(self) -> int:
        return int.from_bytes(self._received[:3], "big")

    def _handle(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(body, "big")
        elif kind in (_SETTINGS, _PING) and not flags & 1:
            if kind == _SETTINGS:
                for name, value in struct.iter_unpack(">HI", body):
                    if name == _INITIAL_WINDOW:
                        self._windows[1] += value - self._initial
                        self._initial = value
            self._send(frame(kind, 1, 0, body if kind == _PING else b""))

    def _send(self, data: bytes) -> None:
        self._socket.setblocking(True)
        self._socket.sendall(data)
        self._socket.setblocking(False)


class DeafClient:
    """A connection whose client opens no flow-control window, so the server can send it no answer. The client answers
    the pings of the server. A call that is refused still ends, because the window does not apply to headers.
    """

    def __init__(self, target: str, token: str = "", source: str = "") -> None:
        host, _, port = target.rpartition(":")
        self._fields = {b"authorization": f"Bearer {token}".encode()} if token else {}
        self._socket = socket.create_connection((host, int(port)), 10, (source, 0) if source else None)
        self._socket.sendall(PREFACE + frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 0)))
        self._lock = threading.Lock()
        self._stream = -1
        self.ended = 0
        """Number of calls that have ended."""
        self.received = 0
        """Number of bytes of answers."""
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, method: str, request: Any, count: int = 1, *, is_open: bool = False) -> None:
        """Send ``count`` equal calls. ``method``: see `headers`. If ``is_open``, more requests could follow."""
        block, data = headers(method, self._fields), message(request)
        for _ in range(count):
            self._stream += 2
            self._send(frame(_HEADERS, 4, self._stream, block) + frame(_DATA, not is_open, self._stream, data))

    def cancel(self) -> None:
        """End all calls, whose answers the server cannot send."""
        for stream in range(1, self._stream + 1, 2):
            self._send(frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL)))

    def listen(self) -> None:
        """Read all answers from now on."""
        self._send(unlimited_windows())

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as received:
            while len(head := received.read(_HEAD)) == _HEAD:
                body = received.read(int.from_bytes(head[:3], "big"))
                kind, flags = head[3], head[4]
                # The flag ends a stream, or it marks an acknowledgement.
                if kind == _HEADERS and flags & 1:
                    self.ended += 1
                elif kind == _DATA:
                    self.received += len(body)
                elif kind in (_SETTINGS, _PING) and not flags & 1:
                    self._send(frame(kind, 1, 0, body if kind == _PING else b""))

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._socket.sendall(data)


def _literal(name: bytes, text: bytes) -> bytes:
    """Return a header in HPACK's literal form, without an index and without Huffman coding."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(text),)) + text
