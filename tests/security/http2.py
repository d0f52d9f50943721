"""HTTP/2 frames made by hand, for requests that no library sends."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_WINDOW_MAX = 2**31 - 1


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


def _literal(name: bytes, text: bytes) -> bytes:
    """Return a header in HPACK's literal form, without an index and without Huffman coding."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(text),)) + text
