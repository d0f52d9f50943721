"""The HTTP endpoint that Prometheus scrapes, with a health check. Needs the extra `metrics`.

Everybody who reaches the port can connect, without a token. So the endpoint takes one thread and a fixed number of file
descriptors, whatever its clients do.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO, StringIO
from threading import Thread
from typing import Any, Final, TextIO, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.event_loop import throttle_unhandled_errors

_CONNECTIONS: Final = 32
_REQUEST_S: Final = 5.0
_ANSWER_S: Final = 10.0
_REQUEST_BYTES: Final = 64 * 1024
# The pause before the next accept if the process has no free file descriptor.
_ACCEPT_AGAIN_S: Final = 0.1
# What happens to unsent bytes when a connection is closed.
_DISCARD_UNSENT: Final = struct.pack("ii", 1, 0)
_SEND_ALL: Final = struct.pack("ii", 0, 0)
_END_OF_REQUEST: Final = re.compile(rb"\n\r?\n")
_HEALTH_PATH: Final = "/healthz"

FindProblem = Callable[[], str]


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors alone, without the default metrics of the Python process."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def start_metrics_server(
    host: str, port: int, *collectors: Collector, find_problem: FindProblem | None = None
) -> Callable[[], None]:
    """Serve the metrics in a new thread, and return a function that stops the server and waits for the thread.

    ``find_problem`` returns why the program does not work, or an empty text. It is the health check, and must not
    block. If it is None, the program has no health check.
    Raises InvalidArgument if the server cannot listen on the address.
    """
    try:
        listener = _Listener(host, port)
    except OSError as error:
        raise InvalidArgument(f"metrics cannot be served on {host}:{port}: {error}") from error
    listener.set_app(_with_health_check(make_wsgi_app(registry_of(*collectors)), find_problem))
    loop = asyncio.new_event_loop()
    throttle_unhandled_errors(loop)
    serving = loop.create_task(_MetricsServer(listener).serve())

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)
        finally:
            loop.close()
            listener.server_close()

    thread = Thread(target=run, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()

    return stop


def _with_health_check(app: WSGIApplication, find_problem: FindProblem | None) -> WSGIApplication:
    """Return the application with the health check. All other paths are those of ``app``."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != _HEALTH_PATH:
            return app(environ, start_response)
        if find_problem is None:
            status, text = "404 Not Found", "this program has no health check on this port"
        else:
            problem = find_problem()
            status, text = ("503 Service Unavailable", problem) if problem else ("200 OK", "ok")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


class _Listener(WSGIServer):
    """The listening socket and the WSGI application."""

    # While a program opens connections as fast as possible, those of Prometheus must still find a place in the queue.
    request_queue_size = 1024

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        super().__init__((host, port), _Exchange)
        self.socket.setblocking(False)


class _Exchange(WSGIRequestHandler):
    """Answers a request that has arrived whole. Reads the request from memory, and keeps the answer in memory."""

    request: Any

    def setup(self) -> None:
        """Replace the files of a socket."""
        self.rfile = BytesIO(self.request)
        self.wfile = self.answer = BytesIO()

    def finish(self) -> None:
        """Leave ``answer`` open for the server."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def get_stderr(self) -> TextIO:
        """Return where wsgiref prints the traceback of a failed request. Everybody can send a request that fails, such
        as one with an invalid `Accept` header, so the traceback is discarded. The client gets status 500.
        """
        return StringIO()


class _MetricsServer:
    """Answers one request of each connection, and closes the connection.

    If all places are taken, the next connection takes the place of the oldest connection whose request has not arrived,
    or of the oldest connection if all requests have arrived. So clients that send or read nothing keep no scrape
    waiting.
    """

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        # The open connections, oldest first, and whether the request of each has arrived.
        self._arrived: dict[asyncio.Task[None], bool] = {}

    async def serve(self) -> None:
        """Serve until the task is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listener.socket)
                except OSError:
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                task = loop.create_task(self._serve_connection(connection, address))
                self._arrived[task] = False
                task.add_done_callback(self._arrived.pop)
                # The task reads once before another connection can take its place. So the server answers a request
                # that arrives with its connection, however fast other connections follow.
                await asyncio.sleep(0)
                if len(self._arrived) > _CONNECTIONS:
                    await self._close_oldest()
        finally:
            for task in self._arrived:
                task.cancel()
            await asyncio.gather(*self._arrived, return_exceptions=True)

    async def _close_oldest(self) -> None:
        """Close one connection, but not the newest: its request may arrive in the next moment."""
        tasks = list(self._arrived)[:-1]
        oldest = next((task for task in tasks if not self._arrived[task]), tasks[0])
        oldest.cancel()
        await asyncio.wait([oldest])

    async def _serve_connection(self, connection: socket.socket, address: object) -> None:
        loop = asyncio.get_running_loop()
        try:
            # The kernel, too, keeps no answer for a client that does not read.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD_UNSENT)
            async with asyncio.timeout(_REQUEST_S):
                request = await _read_request(connection)
            if request is None:
                return
            if (task := asyncio.current_task()) is not None:
                self._arrived[task] = True
            exchange = _Exchange(cast(Any, request), address, self._listener)
            async with asyncio.timeout(_ANSWER_S):
                await loop.sock_sendall(connection, exchange.answer.getvalue())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_ALL)
        except OSError:
            # The time is over (TimeoutError), or the client has closed the connection.
            pass
        finally:
            connection.close()


async def _read_request(connection: socket.socket) -> bytes | None:
    """Return the request line and the headers, or None if the connection ends before or if they are too long."""
    loop = asyncio.get_running_loop()
    request = b""
    while len(request) < _REQUEST_BYTES:
        received = await loop.sock_recv(connection, _REQUEST_BYTES - len(request))
        if not received:
            return None
        request += received
        if _END_OF_REQUEST.search(request):
            return request
    return None
