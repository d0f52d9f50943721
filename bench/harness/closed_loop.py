"""Unary gRPC calls in a closed loop, with a client that uses little CPU time.

A channel of the grpc library takes as much CPU time for a call as a server that only echoes requests: on two cores, the
client would be half of the measurement. So this client implements HTTP/2 itself. It sends requests that were serialized
beforehand, refers to headers in HPACK's table like other clients, and sends and reads as much as possible in one system
call. An answer counts only if it has a message and `grpc-status` 0. Requests are small: each request is one frame, and
all requests in flight fit into the initial window of a connection.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, RFC 9113, RFC 7541
"""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from struct import Struct
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_FRAME: Final = Struct(">BHBBI")
_SETTING: Final = Struct(">HI")
_U32: Final = Struct(">I")
_MESSAGE: Final = Struct(">BI")
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4
_DEFAULT_WINDOW, _LARGEST_WINDOW = 2**16 - 1, 2**31 - 1
_OK: Final = b"\x0bgrpc-status\x010"
# Indexes of HPACK's static table, with 61 entries. Index 62 is the newest entry of the dynamic table.
_POST, _HTTP, _PATH, _AUTHORITY, _CONTENT_TYPE, _NEWEST = 3, 6, 4, 1, 31, 62


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The calls per second, and the CPU time of this process for a call."""

    rate: float
    cpu_us: float


def closed_loop(target: str, path: str, requests: Sequence[bytes], in_flight: int, connections: int = 1) -> LoopResult:
    """Send all requests, with ``in_flight`` calls at a time over all connections.

    The next call starts when a call is answered. Raises RuntimeError if a call fails.
    """
    with ExitStack() as stack, selectors.DefaultSelector() as readable:
        opened_connections = [stack.enter_context(_Connection(target, path)) for _ in range(connections)]
        for connection in opened_connections:
            readable.register(connection.socket, selectors.EVENT_READ, connection)
        waiting = iter(requests)
        began, cpu = time.perf_counter(), time.process_time()
        for connection in opened_connections:
            connection.send(_take(waiting, in_flight // connections))
        answered = 0
        while answered < len(requests):
            for key, _ in readable.select():
                count = key.data.receive_answers()
                answered += count
                key.data.send(_take(waiting, count))
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return LoopResult(len(requests) / seconds, cpu_s / len(requests) * 1e6)


def _take(waiting: Iterator[bytes], count: int) -> list[bytes]:
    return [request for _, request in zip(range(count), waiting, strict=False)]


class _Connection:
    """One HTTP/2 connection for the calls of one method."""

    def __init__(self, target: str, path: str) -> None:
        host, _, port = target.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = [(_PATH, path), (_AUTHORITY, target), (_CONTENT_TYPE, "application/grpc")]
        fields = [_text(index, 6, 0x40) + _string(value) for index, value in headers]
        fields.append(b"\x40" + _string("te") + _string("trailers"))
        fixed = bytes((0x80 | _POST, 0x80 | _HTTP))
        # The first call adds its headers to the table; all other calls send only their indexes.
        self._first_headers = fixed + b"".join(fields)
        self._repeated_headers = fixed + bytes(0x80 | _NEWEST + n for n in reversed(range(len(fields))))
        self._headers = self._first_headers
        self._stream = -1
        self._unread = b""
        self._messages: set[int] = set()
        self._window = _DEFAULT_WINDOW
        settings = _SETTING.pack(_TABLE_SIZE, 0) + _SETTING.pack(_INITIAL_WINDOW, _LARGEST_WINDOW)
        more = _U32.pack(_LARGEST_WINDOW - _DEFAULT_WINDOW)
        self.socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, more))

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, requests: Sequence[bytes]) -> None:
        """Start one call for each request."""
        frames = []
        for request in requests:
            self._stream += 2
            message = _MESSAGE.pack(0, len(request)) + request
            self._window -= len(message)
            frames.append(_frame(_HEADERS, _END_HEADERS, self._stream, self._headers))
            frames.append(_frame(_DATA, _END_STREAM, self._stream, message))
            self._headers = self._repeated_headers
        if self._window < 0:
            raise RuntimeError("the calls in flight exceed the window of the connection")
        if frames:
            self.socket.sendall(b"".join(frames))

    def receive_answers(self) -> int:
        """Wait for the next data of the server, and return the number of calls that ended."""
        read = self.socket.recv(1 << 18)
        if not read:
            raise RuntimeError("the server closed the connection")
        data = self._unread + read
        at = ended = 0
        while at + _FRAME.size <= len(data):
            high, low, kind, flags, stream = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + (high << 16 | low)
            if end > len(data):
                break
            ended += self._frame(kind, flags, stream, data, at + _FRAME.size, end)
            at = end
        self._unread = data[at:]
        return ended

    def _frame(self, kind: int, flags: int, stream: int, data: bytes, at: int, end: int) -> bool:
        """Handle one frame, and return whether it ended a call."""
        if kind == _DATA:
            self._messages.add(stream)
        elif kind == _HEADERS:
            if flags & _END_STREAM:
                if data.find(_OK, at, end) < 0 or stream not in self._messages:
                    raise RuntimeError(f"a call failed: {data[at:end]!r}")
                self._messages.remove(stream)
                return True
        elif kind == _WINDOW_UPDATE and not stream:
            self._window += _U32.unpack_from(data, at)[0]
        elif kind in (_PING, _SETTINGS) and not flags & _ACK:
            self.socket.sendall(_frame(kind, _ACK, 0, data[at:end] if kind == _PING else b""))
        elif kind in (_RST_STREAM, _GOAWAY):
            raise RuntimeError(f"the server ended calls: {data[at:end]!r}")
        return False


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _text(number: int, bits: int, first: int) -> bytes:
    """Encode an integer for HPACK. Raises ValueError if it needs a second byte."""
    if number >= 2**bits - 1:
        raise ValueError(f"{number} does not fit into the first byte (maximum {2**bits - 2})")
    return bytes((first | number,))


def _string(text: str) -> bytes:
    """Encode a string for HPACK without compression."""
    raw = text.encode()
    return _text(len(raw), 7, 0) + raw
