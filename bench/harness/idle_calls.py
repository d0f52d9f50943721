"""A program that opens many calls and leaves them idle. It sends the frames of HTTP/2 itself, so that it takes little
CPU time.

Usage: python -m bench.harness.idle_calls TARGET TOKEN CALLS …

CALLS is PATH,COUNT or PATH,COUNT,request: the calls of one connection. Without the word "request", their requests never
arrive; with it, they are empty, and no more requests follow. The program prints "idle" when it has opened all calls,
reads and ignores all answers, and ends when its input ends.
"""

import selectors
import socket
import struct
import sys
import time
from contextlib import ExitStack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS = 4
_EMPTY_MESSAGE = bytes(5)
# If more than 1,000 calls come at once, gRPC rejects random calls of all clients with CANCELLED.
_PORTION, _PAUSE_S = 100, 0.1


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">HBBBI", len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def _header(name: str, text: str) -> bytes:
    """Return a header in HPACK's literal form, without an index."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(text),)) + text.encode()


def _open_calls(target: str, token: str, calls: str) -> socket.socket:
    path, count, *request = calls.split(",")
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "idle"}
    fields |= {"content-type": "application/grpc", "te": "trailers", "authorization": f"Bearer {token}"}
    headers = b"".join(map(_header, fields, fields.values()))
    host, _, port = target.rpartition(":")
    opened = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
    opened.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    for number in range(int(count)):
        body = _frame(_DATA, 0, 2 * number + 1, _EMPTY_MESSAGE) if request else b""
        opened.sendall(_frame(_HEADERS, _END_HEADERS, 2 * number + 1, headers) + body)
        if not (number + 1) % _PORTION:
            time.sleep(_PAUSE_S)
    return opened


def main(target: str, token: str, *connections: str) -> None:
    """Open all calls, and keep them until the input of the program ends."""
    with ExitStack() as stack, selectors.DefaultSelector() as readable:
        readable.register(sys.stdin.fileno(), selectors.EVENT_READ)
        for calls in connections:
            readable.register(stack.enter_context(_open_calls(target, token, calls)), selectors.EVENT_READ)
        print("idle", flush=True)
        while True:
            for key, _ in readable.select():
                if not isinstance(key.fileobj, socket.socket):
                    return
                if not key.fileobj.recv(1 << 16):
                    raise ConnectionError("the service closed the connection")


if __name__ == "__main__":
    main(*sys.argv[1:])
