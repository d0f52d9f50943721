"""One process of the gRPC service, from options to shutdown, for `tickwheel serve` and `tickwheel dev`."""

import asyncio
import logging
import os
import signal
import threading
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel import limits
from tickwheel.cli.listen_address import format_address, parse_address
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import TIMEOUT, Target
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.event_loop import throttle_unhandled_errors
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.gc_freeze import collect_seldom, freeze_gc
from tickwheel.runtime.log_fields import log_fields

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.service.server import Server

LISTEN = "127.0.0.1:7400"
DRAIN = timedelta(seconds=10)
_log = logging.getLogger("tickwheel.service")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `tickwheel serve`."""

    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen on. For port 0, a free port is chosen and printed."),
    ] = LISTEN
    durability: Annotated[
        str | None,
        typer.Option(
            help="How durable a change is before its call is answered: memory, fsync or replica:N. Default: memory, or"
            " fsync with an embedded server."
        ),
    ] = None
    drain: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="How long calls in flight may take to finish after SIGTERM (default 10s).",
        ),
    ] = None
    # The command itself checks whether it can read the files, and names the remedy.
    tls_cert: Annotated[Path | None, typer.Option(readable=False, help="The server's certificate chain, in PEM.")] = (
        None
    )
    tls_key: Annotated[
        Path | None, typer.Option(readable=False, help="The private key of the certificate, in PEM.")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="Accept only clients with a certificate that one of these authorities signed; in PEM."
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Accept only the tokens of this file, with the permissions set there (`tickwheel token`).",
        ),
    ] = None
    shards: Annotated[
        int | None,
        typer.Option(help="Number of shards of a new namespace. An existing namespace must have the same number."),
    ] = None
    processes: Annotated[
        int,
        typer.Option(min=1, max=256, help="Number of processes that share the port. Recommended: one for each core."),
    ] = 1
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics under /metrics, summed over the processes."),
    ] = None
    max_connections: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum connections of each process; each takes about 15 KB.")
    ] = limits.CONNECTIONS
    max_waiting: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Maximum waiting calls (dequeues with a wait, and streams) of each process; each takes about 30 KB.",
        ),
    ] = limits.WAITING_CALLS
    part: Annotated[
        bool,
        typer.Option(
            "--part",
            hidden=True,
            help="Run as one of several processes that `tickwheel serve` started; stop when standard input is closed.",
        ),
    ] = False
    metrics_socket: Annotated[
        Path | None, typer.Option("--figures", hidden=True, help="With --part: the socket that serves its metrics.")
    ] = None
    quotas: Annotated[
        str | None,
        typer.Option(
            hidden=True,
            help="With --part: the descriptor of the memory with the use of tokens, the number of processes, and the"
            " number of this one.",
        ),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow other machines to connect without encryption.")
    ] = False
    verbose: Annotated[bool, typer.Option("--verbose", help="Log at debug level.")] = False

    @property
    def drain_s(self) -> float:
        return (DRAIN if self.drain is None else self.drain).total_seconds()


def listen_address(listen: str, *, shared: bool = False) -> tuple[str, int]:
    use, cannot = "--listen must be HOST:PORT, like 127.0.0.1:7400", "--listen: cannot listen on"
    return parse_address(listen, use, cannot, shared=shared)


def _client_settings(target: Target, durability: str | None) -> ClientSettings:
    timeout = TIMEOUT if target.timeout is None else target.timeout
    client_settings = ClientSettings.validate(
        target.url, target.namespace or "tw", target.data_dir, durability, False, timeout
    )
    if client_settings.is_service:
        raise InvalidArgument("--url must name the Redis or Valkey server with the messages, not a grpc:// service")
    return client_settings


def make_server(target: Target, address: tuple[str, int], options: ServeOptions) -> "Server":
    client_settings = _client_settings(target, options.durability)
    if not options.verbose:
        # The C library of gRPC reads this variable when it is imported. It would write lines of its own to stderr, as
        # many as strangers cause, for example with compressed requests.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from tickwheel.service.grpc_options import raise_fd_limit
        from tickwheel.service.server import Server
        from tickwheel.service.shared_quota import SharedQuotas
        from tickwheel.service.tls import credentials
        from tickwheel.service.token_file import TokenFile
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the service needs {error.name}: {describe_install('grpc')}") from error
    quotas = None
    if options.quotas is not None:
        fd, processes, process = map(int, options.quotas.split(","))
        quotas = SharedQuotas(processes, process, fd)
    return Server(
        client_settings,
        format_address(*address),
        tokens=None if options.tokens is None else TokenFile(options.tokens, quotas),
        credentials=credentials(options.tls_cert, options.tls_key, options.tls_client_ca),
        shares_port=options.part,
        connections=raise_fd_limit(options.max_connections),
        waiting=options.max_waiting,
    )


def make_collector(server: "Server") -> "Collector":
    from tickwheel.service.metrics import ServiceMetrics

    return ServiceMetrics(server)


async def serve_until_stopped(server: "Server", host: str, options: ServeOptions) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    throttle_unhandled_errors(loop)
    # The token file is checked every second, so SIGHUP is not needed to read it again.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if options.part:
        threading.Thread(target=_stop_at_eof, args=(loop, stopping), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await server.start()
    freeze_gc()
    collect_seldom()
    # The processes of `tickwheel serve --processes` share the address, which their parent prints.
    url = f"{server.scheme}://{format_address(host, server.port)}"
    _log.info(
        "serving %s, with %s",
        f"port {server.port}" if options.part else url,
        server.display_url,
        extra=log_fields("serving", where=server.display_url, port=server.port),
    )
    try:
        async with AsyncExitStack() as stack:
            if options.metrics_socket is not None:
                from tickwheel.service.multiprocess_metrics import serve_counters

                await stack.enter_async_context(serve_counters(options.metrics_socket, make_collector(server)))
            await stopping.wait()
            log_ending(options.drain_s)
    finally:
        await server.stop(options.drain_s)
    log_ended()


def log_ending(drain_s: float) -> None:
    fields = {"event": "ending", "drain_s": drain_s}
    _log.info("ending: up to %g s for the calls in flight", drain_s, extra={"fields": fields})


def log_ended() -> None:
    _log.info("ended", extra={"fields": {"event": "ended"}})


def _stop_at_eof(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    while os.read(0, 1024):
        pass
    # Standard input is closed: the parent process has exited, or has closed the pipe to stop this process.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(stopping.set)
