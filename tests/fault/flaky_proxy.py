"""A proxy between a client and its server: it loses replies, cuts, stalls, slows and refuses connections."""

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
    """Listens on a free port of this host and forwards to ``target``, a server's unix socket or its host and port; what
    connects later goes to the target of that time. With ``tls`` it is the TLS end. ``requests`` is what was asked.

    ``loses`` is the chance that a piece of the server's answer is lost, and the connection cut then; the answer to a
    request that holds ``loses_answer_to`` is always lost, or ``times`` times. ``when_lost`` is called before the client
    can know. ``delay_s`` is what a piece waits on its way, either way, by twice that at most. ``refuses``: new
    connections are closed at once.
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
        self.refuses = False
        self._going = threading.Event()
        self._going.set()
        self._keeps_requests = keeps_requests
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

    def stall(self) -> None:
        """Nothing passes from now on; connections stay open and silent, new ones too."""
        self._going.clear()

    def go_on(self) -> None:
        """Let pass what waits."""
        self._going.set()

    def close(self) -> None:
        self.go_on()
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
            if self.refuses:
                self.refused += 1
                return
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            self._going.wait()
            with near, self._connected() as far:
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
                if self._keeps_requests:
                    self.requests.append(asked)
                self._hold_up()
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
                self._hold_up()
                near.sendall(answered)
        self._doomed.discard(near)
        _shut(near)

    def _connected(self) -> socket.socket:
        if isinstance(self.target, tuple):
            far = socket.create_connection(self.target)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return far
        far = socket.socket(socket.AF_UNIX)
        far.connect(self.target)
        return far

    def _hold_up(self) -> None:
        if self.delay_s:
            self.delayed += 1
            time.sleep(self._random.uniform(0, 2 * self.delay_s))
        self._going.wait()


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
