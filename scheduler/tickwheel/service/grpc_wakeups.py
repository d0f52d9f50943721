"""Keeps the thread that wakes the event loop from waiting for the event loop.

In `grpc.aio`, a thread polls for events, and writes a byte to a socket for each event. The event loop reads one byte in
each of its turns, and takes all events. The socket blocks when its buffer is full, after some hundred events in one
turn. Then the thread polls no more until the loop has read most of the bytes, turn by turn: if a turn takes 20 ms, no
call begins or ends for seconds. With a socket that does not block, the byte is dropped. This loses no event, because
the bytes before it wake the loop.
"""

import socket
import threading
from collections.abc import Sequence
from typing import Any

import grpc


def make_server(options: Sequence[tuple[str, Any]]) -> grpc.aio.Server:
    """Return a server of `grpc.aio` with these options.

    If the process already uses `grpc.aio` for something else, the socket stays as it is.
    """
    make_pair, thread = socket.socketpair, threading.get_ident()

    def make_wakeup_pair(*arguments: Any, **options: Any) -> tuple[socket.socket, socket.socket]:
        read, write = make_pair(*arguments, **options)
        if threading.get_ident() == thread:
            write.setblocking(False)
        return read, write

    socket.socketpair = make_wakeup_pair
    try:
        return grpc.aio.server(options=options)
    finally:
        socket.socketpair = make_pair
