"""One process of the gRPC service, from options to shutdown, for `tickwheel serve` and `tickwheel dev`."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel import limits
from tickwheel.cli.drive_option import Drive, DriveKafka, DriveOption, last_resort_options
from tickwheel.cli.grpc_log import silence_grpc
from tickwheel.cli.kafka_options import KafkaConfig, KafkaSetting, SinkTopics, Topic
from tickwheel.cli.listen_address import format_address, parse_address
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import TIMEOUT, Target
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.event_loop import throttle_unhandled_errors
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.gc_freeze import collect_seldom, freeze_gc
from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.last_resort_driver import LastResortDriver

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.service.server import Server

LISTEN = "127.0.0.1:7400"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
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
    max_shards: Annotated[
        int,
        typer.Option(
            min=1,
            max=limits.SHARDS_MAX,
            help="Maximum shards of a namespace that a client creates. The operator may create one with more.",
        ),
    ] = limits.CREATED_SHARDS
    drive: DriveOption = Drive.AUTO
    kafka: DriveKafka = None
    topic: Topic = None
    kafka_setting: KafkaSetting = None
    kafka_config: KafkaConfig = None
    sink_topics: SinkTopics = None
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
        silence_grpc()
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
        created_shards=options.max_shards,
    )


def check_drive(target: Target, options: ServeOptions) -> LastResortOptions | None:
    """Return how the service drives as a last resort; None if it never drives. Raises InvalidArgument."""
    if options.kafka is not None and target.url is None:
        raise InvalidArgument("--kafka is for a server with a URL: with a data directory, leave it out")
    how = last_resort_options(options, _log, json=target.json)
    return None if options.part else how


@contextmanager
def driving(target: Target, options: ServeOptions, how: LastResortOptions | None) -> Iterator[LastResortDriver]:
    """Open the namespace, and drive it while no event process does, until the end of the block.

    If ``how`` is None, never drive. Warn while nobody drives. One of several processes of a service does none of this.
    """
    driver = LastResortDriver(how, _log)
    if options.part:
        yield driver
        return
    # A token without the role admin on all queues cannot create the namespace. With an embedded server, the event
    # process of the client drives.
    with target.open(drive=how is not None, durability=options.durability, shards=options.shards) as client:
        driver.start(client)
        try:
            yield driver
        finally:
            driver.stop()


def make_collector(server: "Server") -> "Collector":
    from tickwheel.service.metrics import ServiceMetrics

    return ServiceMetrics(server)


async def serve_until_stopped(
    server: "Server", host: str, options: ServeOptions, on_stopping: Callable[[], object] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT. Then call ``on_stopping``, and answer the calls in flight.

    A second signal ends these calls immediately. After the last call, the signals are ignored: the process ends soon.
    """
    from tickwheel.service.namespace_alarm import NamespaceAlarm

    stopping, hurrying = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    throttle_unhandled_errors(loop)
    # The token file is checked every second, so SIGHUP is not needed to read it again.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if options.part:
        threading.Thread(target=_stop_at_eof, args=(loop, stopping), daemon=True).start()

    def stop() -> None:
        # A part of a service also stops when its input ends. So its second signal is the first one for the service.
        (hurrying if stopping.is_set() and not options.part else stopping).set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    await server.start()
    freeze_gc()
    collect_seldom()
    # The processes of `tickwheel serve --processes` share the address, which their parent logs.
    url = f"{server.scheme}://{format_address(host, server.port)}"
    log_serving(server, f"port {server.port}" if options.part else url, server.port)
    try:
        async with AsyncExitStack() as stack:
            if options.metrics_socket is not None:
                from tickwheel.service.multiprocess_metrics import serve_counters

                await stack.enter_async_context(serve_counters(options.metrics_socket, make_collector(server)))
            alarm = loop.create_task(NamespaceAlarm(lambda: server.namespaces, server.own_namespace).run())
            stack.callback(alarm.cancel)
            await stopping.wait()
            on_stopping()
            log_ending(options.drain_s)
    finally:
        await _stop_server(server, options.drain_s, hurrying)
    # The caller may wait for a child that hands its shards over.
    _ignore_signals(loop)
    log_ended()


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore further signals until the process exits. The end of the loop would restore handlers that end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _stop_server(server: "Server", drain_s: float, hurrying: asyncio.Event) -> None:
    """Stop the server within the drain time, or at once when ``hurrying`` is set."""
    stop = asyncio.ensure_future(server.stop(drain_s))
    hurry = asyncio.ensure_future(hurrying.wait())
    await asyncio.wait((stop, hurry), return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not stop.done():
        await server.end_calls()
    await stop


def log_serving(server: "Server", address: str, port: int) -> None:
    _log.info(
        "serving %s, with %s",
        address,
        server.display_url,
        extra=log_fields("serving", where=server.display_url, port=port),
    )


def log_ending(drain_s: float) -> None:
    fields = {"event": "ending", "drain_s": drain_s}
    text = "ending: up to %g s for the calls in flight; a second signal ends them immediately"
    _log.info(text, drain_s, extra={"fields": fields})


def log_ended() -> None:
    _log.info("ended", extra={"fields": {"event": "ended"}})


def _stop_at_eof(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    while os.read(0, 1024):
        pass
    # Standard input is closed: the parent process has exited, or has closed the pipe to stop this process.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(stopping.set)
