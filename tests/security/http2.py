"""HTTP/2 by hand, for what no library would send."""

import struct
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_MOST = 2**31 - 1


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def headers(method: str) -> bytes:
    """Those of a call of MessageService."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"/tickwheel.v1.MessageService/{method}".encode(),
        b":authority": b"x",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return b"".join(map(_literal, fields, fields.values()))


def message(request: Any) -> bytes:
    """A message as gRPC puts it into a stream's data."""
    body: bytes = request.SerializeToString()
    return b"\0" + struct.pack(">I", len(body)) + body


def take_all() -> bytes:
    """Settings of who takes as much as there is, of each stream and of all, before anything is acknowledged."""
    settings = frame(4, 0, 0, struct.pack(">HI", 4, _MOST))
    return settings + frame(8, 0, 0, struct.pack(">I", _MOST - 65_535))


def _literal(name: bytes, text: bytes) -> bytes:
    """A header as HPACK has it, without an index and without Huffman's code."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(text),)) + text
