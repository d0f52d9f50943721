"""A program that opens many calls and leaves them idle. It sends the frames of HTTP/2 itself, so that it takes little
CPU time.

Usage: python -m bench.harness.idle_calls TARGET TOKEN CALLS …

CALLS is PATH,COUNT or PATH,COUNT,request: the calls of one connection. Without the word "request", their requests never
arrive; with it, they are empty, and no more requests follow. A connection opens its calls in portions, each with a
health check at the end, because gRPC cancels calls if too many of them wait to be accepted. The service accepts the
calls of a connection in their order, so the answer to the check shows that it has accepted the portion. After the last
one, the program prints "idle". It ignores all other answers, and ends when its input ends.
"""

import selectors
import socket
import struct
import sys
from contextlib import ExitStack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_EMPTY_MESSAGE = bytes(5)
_CHECK = "/grpc.health.v1.Health/Check"
# Size of the head of a frame.
_HEAD = 9
# The calls of a connection that wait to be accepted at a time. 12 connections stay below the limit of the service.
_PORTION = 100


class _Connection:
    """A connection with idle calls."""

    def __init__(self, target: str, token: str, calls: str) -> None:
        path, count, *request = calls.split(",")
        host, _, port = target.rpartition(":")
        self._headers, self._check_headers = _headers(path, token), _headers(_CHECK, token)
        self._sends_request = bool(request)
        self._left, self._stream = int(count), 1
        self._received = b""
        self._socket = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        self.is_accepted = False
        self._send_portion()

    def _send_portion(self) -> None:
        """Open the next calls, and then the health check."""
        frames = []
        for _ in range(min(_PORTION, self._left)):
            frames.append(_frame(_HEADERS, _END_HEADERS, self._stream, self._headers))
            if self._sends_request:
                frames.append(_frame(_DATA, 0, self._stream, _EMPTY_MESSAGE))
            self._stream += 2
        self._left -= min(_PORTION, self._left)
        self._check = self._stream
        self._stream += 2
        frames.append(_frame(_HEADERS, _END_HEADERS, self._check, self._check_headers))
        frames.append(_frame(_DATA, _END_STREAM, self._check, _EMPTY_MESSAGE))
        self._socket.sendall(b"".join(frames))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> None:
        """Read what has arrived. Answer pings, because the service would close the connection otherwise."""
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the service closed the connection")
        self._received += data
        place = 0
        while len(self._received) - place >= _HEAD:
            high, low, kind, flags, stream = struct.unpack_from(">HBBBI", self._received, place)
            end = place + _HEAD + (high << 8 | low)
            if len(self._received) < end:
                break
            if kind == _PING and not flags & _ACK:
                self._socket.sendall(_frame(_PING, _ACK, 0, self._received[place + _HEAD : end]))
            if stream == self._check:
                if self._left:
                    self._send_portion()
                else:
                    self.is_accepted = True
            place = end
        self._received = self._received[place:]


def _headers(path: str, token: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "idle"}
    fields |= {"content-type": "application/grpc", "te": "trailers", "authorization": f"Bearer {token}"}
    return b"".join(map(_header, fields, fields.values()))


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">HBBBI", len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def _header(name: str, text: str) -> bytes:
    """Return a header in HPACK's literal form, without an index."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(text),)) + text.encode()


def main(target: str, token: str, *calls: str) -> None:
    """Open all calls, and keep them until the input of the program ends."""
    with ExitStack() as stack, selectors.DefaultSelector() as readable:
        readable.register(sys.stdin.fileno(), selectors.EVENT_READ)
        waiting = set()
        for of_connection in calls:
            connection = _Connection(target, token, of_connection)
            stack.callback(connection.close)
            readable.register(connection, selectors.EVENT_READ)
            waiting.add(connection)
        while True:
            for key, _ in readable.select():
                if not isinstance(key.fileobj, _Connection):
                    return
                key.fileobj.read()
                if key.fileobj.is_accepted and key.fileobj in waiting:
                    waiting.remove(key.fileobj)
                    if not waiting:
                        print("idle", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
