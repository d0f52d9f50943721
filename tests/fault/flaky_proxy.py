"""A proxy between a client and its server that loses replies, cuts connections, and keeps what was asked."""

import random
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16


class FlakyProxy:
    """Listens on a free port of this host and forwards to a server's unix socket. With ``tls`` it is the TLS end.

    ``loses`` is the chance that a piece of the server's answer is lost, and the connection cut then; the answer to a
    request that holds ``loses_answer_to`` is always lost, or ``times`` times. ``when_lost`` is called before the client
    can know.
    """

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None, seed: int = 0) -> None:
        self.loses = 0.0
        self.loses_answer_to = b""
        self.times = inf
        self.lost = 0
        self.when_lost: Callable[[], object] = lambda: None
        self.requests: list[bytes] = []
        self._target = target
        self._tls = tls
        self._random = random.Random(seed)
        self._open: set[socket.socket] = set()
        self._doomed: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def close(self) -> None:
        # A listener that is only closed would go on in `accept`.
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
            # Without it small requests wait for acknowledgements: 40 ms each.
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            with near, socket.socket(socket.AF_UNIX) as far:
                far.connect(self._target)
                with self._lock:
                    self._open |= {near, far}
                back = threading.Thread(target=self._answer, args=(far, near), daemon=True)
                back.start()
                self._ask(near, far)
                _shut(far)
                back.join()
                with self._lock:
                    self._open -= {near, far}

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while asked := near.recv(_CHUNK):
                self.requests.append(asked)
                if self.loses_answer_to and self.loses_answer_to in asked and self.times > 0:
                    self.times -= 1
                    self._doomed.add(near)
                far.sendall(asked)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while answered := far.recv(_CHUNK):
                if near in self._doomed or self._random.random() < self.loses:
                    self.lost += 1
                    self.when_lost()
                    break
                near.sendall(answered)
        self._doomed.discard(near)
        _shut(near)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
