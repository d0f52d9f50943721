"""The gRPC service in a thread of the tests' process, before the server that a namespace is in."""

import asyncio
import threading

from tickwheel.opening import Opening
from tickwheel.service.server import Server

_START_S = 30.0


class ServiceThread:
    """Serves from `start` to `stop`."""

    def __init__(self, url: str, clock: str = "_clock") -> None:
        self._opening = Opening(url, "tw", None, None, None, None)
        self._clock = clock
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self.url = ""

    def __enter__(self) -> "ServiceThread":
        self._thread.start()
        assert self._started.wait(_START_S)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with Server(self._opening, "127.0.0.1:0", clock=self._clock) as server:
            self.url = f"grpc://127.0.0.1:{server.port}"
            self._started.set()
            await self._stopping.wait()
