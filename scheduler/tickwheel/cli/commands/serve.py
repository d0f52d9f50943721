"""`tickwheel serve`: the gRPC service, for programs that do not go to the server themselves."""

import asyncio
import logging
import signal
import stat
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel import limits
from tickwheel.cli.command import command
from tickwheel.cli.listen_address import format_address, is_loopback, wait_until_served
from tickwheel.cli.metrics_option import metrics_address, serving_metrics
from tickwheel.cli.output import print_status
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.service_process import (
    DRAIN,
    LISTEN,
    client_settings_of,
    listen_address,
    log_ended,
    log_ending,
    make_collector,
    make_server,
    serve_until_stopped,
)
from tickwheel.cli.target import Target
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.signals import handle_in_thread

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

commands = typer.Typer()
_log = logging.getLogger("tickwheel.service")


@command(
    commands,
    "serve",
    "tickwheel serve --url redis://localhost:6379",
    "tickwheel serve --url redis+cluster://redis1,redis2 --listen 127.0.0.1:7400",
    panel="Processes",
)
def serve(
    target: Target,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 is any that is free, which the log names.")
    ] = LISTEN,
    durability: Annotated[
        str | None,
        typer.Option(help="What an answered call has reached: memory, fsync or replica:N. By default memory."),
    ] = None,
    drain: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="How long calls under way may take to end after SIGTERM (default 10s).",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The server's certificate, in PEM, with those that vouch for it.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate, in PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Answer only to clients with a certificate of these authorities, in PEM.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="Answer only to the tokens of this file, each for what it says there (`tickwheel token`)."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="How many processes share the port; each is worth a core.")
    ] = 1,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve figures to Prometheus, under /metrics; of several processes their sum."
        ),
    ] = None,
    max_connections: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many connections each process takes; some 15 KB each.")
    ] = limits.CONNECTIONS,
    max_waiting: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="How many calls of each process may wait: dequeues with a wait, and streams; some 30 KB each.",
        ),
    ] = limits.WAITING_CALLS,
    part: Annotated[
        bool, typer.Option("--part", hidden=True, help="One of several, until standard input ends.")
    ] = False,
    metrics_socket: Annotated[
        Path | None, typer.Option("--figures", hidden=True, help="Of a part: the socket where it tells its figures.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine, though nothing is encrypted.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what is of use to debug.")] = False,
) -> None:
    """Serve the gRPC API of proto/tickwheel/v1: any number of such processes before one Redis.

    It keeps nothing: where one ends, its clients go on with another. The log goes to stderr. SIGTERM and SIGINT end it
    once the calls under way are answered; those that wait for messages are answered at once.
    """
    host, port = listen_address(listen, shared=part)
    if tls_cert is None and not is_loopback(host):
        if tokens is not None:
            raise InvalidArgument(f"--tokens would be sent to {listen} for all to read: it needs --tls-cert there")
        if not insecure:
            raise InvalidArgument(
                f"--listen {listen} is reached from other machines, and nothing would be encrypted: give --tls-cert and"
                " --tls-key, or accept it by --insecure"
            )
    page = None if metrics is None else metrics_address(metrics)
    if page is not None and not is_loopback(page[0]) and not insecure:
        raise InvalidArgument(
            f"--metrics {metrics} is reached from other machines, and is not encrypted: accept it by --insecure"
        )
    for name, file in (("--tls-key", tls_key), ("--tokens", tokens)):
        _check_private(name, file)
    log_to_stderr(json=target.json, verbose=verbose)
    # Of several processes, too: what is wrong is told here, once.
    client_settings = client_settings_of(target, durability)
    server = make_server(
        client_settings,
        host,
        port,
        tokens,
        (tls_cert, tls_key, tls_client_ca),
        shares_port=part,
        connections=max_connections,
        waiting=max_waiting,
    )
    drain_s = (DRAIN if drain is None else drain).total_seconds()
    if processes == 1:
        with serving_metrics(page, lambda: make_collector(server), _log):
            asyncio.run(serve_until_stopped(server, host, drain_s, until_eof=part, metrics_socket=metrics_socket))
        return
    values = {"durability": durability, "tls-cert": tls_cert, "tls-key": tls_key, "tls-client-ca": tls_client_ca}
    options = [f"--{name}={value}" for name, value in (values | {"tokens": tokens}).items() if value is not None]
    options += [f"--drain={round(1_000 * drain_s)}ms"]
    options += [f"--max-connections={max_connections}", f"--max-waiting={max_waiting}"]
    options += [
        f"--{name}"
        for name, enabled in (("insecure", insecure), ("verbose", verbose), ("json", target.json))
        if enabled
    ]
    _serve_with_processes(target, server.scheme, host, port, processes, options, drain_s, page)


def _serve_with_processes(
    target: Target,
    scheme: str,
    host: str,
    port: int,
    processes: int,
    options: list[str],
    drain_s: float,
    page: tuple[str, int] | None,
) -> None:
    from tickwheel.service.multiprocess import reserve_port, run_processes

    stopping = threading.Event()
    handle_in_thread((signal.SIGTERM, signal.SIGINT), stopping.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with reserve_port(host, port) as shared_port, TemporaryDirectory(prefix="tickwheel-") as folder:
        command = [
            sys.executable,
            "-m",
            "tickwheel",
            "serve",
            "--part",
            "--listen",
            format_address(host, shared_port),
            *options,
        ]
        sockets = [Path(folder, str(n)) for n in range(processes)] if page is not None else None
        with (
            run_processes(command, target.environment(), processes, drain_s, sockets),
            serving_metrics(page, lambda: _make_multiprocess_collector(sockets or []), _log),
        ):
            wait_until_served(host, shared_port, stopping)
            print_status(f"serving {scheme}://{host}:{shared_port}")
            stopping.wait()
            log_ending(drain_s)
    log_ended()


def _make_multiprocess_collector(sockets: list[Path]) -> "Collector":
    from tickwheel.service.multiprocess_metrics import MultiprocessCollector

    return MultiprocessCollector(sockets)


def _check_private(name: str, path: Path | None) -> None:
    """Refuse a file that any user of this machine can read or change. Whether it is there at all is found elsewhere."""
    with suppress(OSError):
        if path is not None and path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise InvalidArgument(f"{name} {path} is open to every user of this machine: chmod o-rwx {path}")
