"""A proxy between a client and its server that loses replies, and cuts, stalls, slows or refuses connections."""

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16


class FlakyProxy:
    """Listens on a free port and forwards to ``target``: the unix socket of a server, or its host and port.

    New connections use the current value of ``target``. With ``tls``, the proxy terminates TLS. ``requests`` has the
    bytes of each read from a client.

    ``loses`` is the probability that a chunk of an answer is lost; the proxy then cuts the connection. The answer to a
    request that contains ``loses_answer_to`` is lost each time, or the first ``times`` times. ``when_lost`` is called
    before the client can notice the loss. ``delay_s`` is the mean delay of a chunk in either direction; the maximum is
    twice as long. With ``refuses``, new connections are closed immediately. With ``silences_subscribers``, connections
    with subscriptions stay open, but receive nothing.
    """

    def __init__(
        self,
        target: str | tuple[str, int],
        *,
        tls: ssl.SSLContext | None = None,
        seed: int = 0,
        keeps_requests: bool = True,
    ) -> None:
        self.loses = 0.0
        self.loses_answer_to = b""
        self.times = inf
        self.lost = 0
        self.when_lost: Callable[[], object] = lambda: None
        self.requests: list[bytes] = []
        self.target = target
        self.delay_s = 0.0
        self.delayed = self.refused = 0
        self.refuses = self.silences_subscribers = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._keeps_requests = keeps_requests
        self._tls = tls
        self._random = random.Random(seed)
        self._open: set[socket.socket] = set()
        self._losing: set[socket.socket] = set()
        self._subscribers: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            for connection in self._open:
                _shut(connection)

    def stall(self) -> None:
        """Stop forwarding. Connections stay open and silent, new connections too."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Resume forwarding, also of the data that was held back."""
        self._flowing.set()

    def close(self) -> None:
        self.go_on()
        # Without a shutdown, `accept` would keep waiting on the closed listener.
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError), near:
            # Without TCP_NODELAY, each small request waits 40 ms for an acknowledgement.
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.refuses:
                self.refused += 1
                return
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            self._flowing.wait()
            with near, self._connect() as far:
                with self._lock:
                    self._open |= {near, far}
                back = threading.Thread(target=self._forward_replies, args=(far, near), daemon=True)
                back.start()
                self._forward_requests(near, far)
                _shut(far)
                back.join()
                with self._lock:
                    self._open -= {near, far}

    def _forward_requests(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while request := near.recv(_CHUNK):
                if self._keeps_requests:
                    self.requests.append(request)
                self._delay()
                if b"SSUBSCRIBE" in request:
                    self._subscribers.add(near)
                if self.loses_answer_to and self.loses_answer_to in request and self.times > 0:
                    self.times -= 1
                    self._losing.add(near)
                far.sendall(request)

    def _forward_replies(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while reply := far.recv(_CHUNK):
                if self.silences_subscribers and near in self._subscribers:
                    self.lost += 1
                    continue
                if near in self._losing or self._random.random() < self.loses:
                    self.lost += 1
                    self.when_lost()
                    break
                self._delay()
                near.sendall(reply)
        self._losing.discard(near)
        _shut(near)

    def _connect(self) -> socket.socket:
        if isinstance(self.target, tuple):
            far = socket.create_connection(self.target)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return far
        far = socket.socket(socket.AF_UNIX)
        far.connect(self.target)
        return far

    def _delay(self) -> None:
        if self.delay_s:
            self.delayed += 1
            time.sleep(self._random.uniform(0, 2 * self.delay_s))
        self._flowing.wait()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
