"""The gRPC service in a thread of the tests' process, in front of the server of a namespace."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tickwheel.client.settings import ClientSettings
from tickwheel.service.server import Server

_START_S = 30.0


class ServiceThread:
    """Serves from `start` to `stop`."""

    def __init__(self, url: str, clock: str = "_clock", host: str = "127.0.0.1", **settings: Any) -> None:
        """``settings``: those of `Server`, and the ``timeout`` and the ``durability`` of its calls to Redis."""
        durability, timeout = settings.pop("durability", None), settings.pop("timeout", None)
        self._client_settings = ClientSettings.validate(url, "tw", None, durability, None, timeout)
        self._host = host
        self._settings = settings | {"clock": clock}
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self.target = self.url = ""

    def __enter__(self) -> "ServiceThread":
        self._thread.start()
        assert self._started.wait(_START_S)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop as a process of the service does after SIGTERM."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_S)
        assert not self._thread.is_alive()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Block the event loop of the service in the ``with`` block."""
        is_blocked, unblock = threading.Event(), threading.Event()

        def block() -> None:
            is_blocked.set()
            unblock.wait(_START_S)

        self._loop.call_soon_threadsafe(block)
        assert is_blocked.wait(_START_S)
        try:
            yield
        finally:
            unblock.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with Server(self._client_settings, f"{self._host}:0", **self._settings) as server:
            self.server = server
            self.target = f"{self._host}:{server.port}"
            self.url = f"{server.scheme}://{self.target}"
            self._started.set()
            await self._stopping.wait()
