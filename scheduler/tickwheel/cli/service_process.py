"""A process of the service, as `tickwheel serve` and `tickwheel dev` run it: from its options to its end."""

import asyncio
import logging
import os
import signal
import threading
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tickwheel import limits
from tickwheel.cli.listen_address import format_address, parse_address
from tickwheel.cli.output import print_status
from tickwheel.cli.target import TIMEOUT, Target
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.gc_freeze import freeze_gc

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.service.server import Server

LISTEN = "127.0.0.1:7400"
DRAIN = timedelta(seconds=10)
_log = logging.getLogger("tickwheel.service")


def listen_address(listen: str, *, shared: bool = False) -> tuple[str, int]:
    use, cannot = "--listen must be HOST:PORT, as 127.0.0.1:7400", "--listen: nothing can listen on"
    return parse_address(listen, use, cannot, shared=shared)


def client_settings_of(target: Target, durability: str | None) -> ClientSettings:
    timeout = TIMEOUT if target.timeout is None else target.timeout
    client_settings = ClientSettings.validate(
        target.url, target.namespace or "tw", target.data_dir, durability, False, timeout
    )
    if client_settings.is_service:
        raise InvalidArgument("--url is where messages are kept, not another server of this product")
    return client_settings


def make_server(
    client_settings: ClientSettings,
    host: str,
    port: int,
    tokens: Path | None = None,
    tls: tuple[Path | None, Path | None, Path | None] = (None, None, None),
    *,
    shares_port: bool = False,
    connections: int = limits.CONNECTIONS,
    waiting: int = limits.WAITING_CALLS,
) -> "Server":
    try:
        from tickwheel.service.server import Server
        from tickwheel.service.server_options import raise_fd_limit
        from tickwheel.service.tls import credentials
        from tickwheel.service.token_file import TokenFile
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the service needs {error.name}: install tickwheel[grpc]") from error
    return Server(
        client_settings,
        format_address(host, port),
        tokens=None if tokens is None else TokenFile(tokens),
        credentials=credentials(*tls),
        shares_port=shares_port,
        connections=raise_fd_limit(connections),
        waiting=waiting,
    )


def make_collector(server: "Server") -> "Collector":
    from tickwheel.service.metrics import ServiceMetrics

    return ServiceMetrics(server)


async def serve_until_stopped(
    server: "Server", host: str, drain_s: float, *, until_eof: bool = False, metrics_socket: Path | None = None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The tokens' file is looked at each second anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if until_eof:
        threading.Thread(target=_stop_at_eof, args=(loop, stopping), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await server.start()
    freeze_gc()
    if not until_eof:
        print_status(f"serving {server.scheme}://{host}:{server.port}")
    try:
        async with AsyncExitStack() as stack:
            if metrics_socket is not None:
                from tickwheel.service.multiprocess_metrics import serve_counters

                await stack.enter_async_context(serve_counters(metrics_socket, make_collector(server)))
            await stopping.wait()
            log_ending(drain_s)
    finally:
        await server.stop(drain_s)
    log_ended()


def log_ending(drain_s: float) -> None:
    fields = {"event": "ending", "drain_s": drain_s}
    _log.info("ending: %g s for the calls under way", drain_s, extra={"fields": fields})


def log_ended() -> None:
    _log.info("ended", extra={"fields": {"event": "ended"}})


def _stop_at_eof(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    # The program that started this one has ended, or says so.
    while os.read(0, 1024):
        pass
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(stopping.set)
