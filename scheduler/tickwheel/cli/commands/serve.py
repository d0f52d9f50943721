"""`tickwheel serve`: the gRPC service, for programs that do not connect to Redis themselves."""

import logging
import signal
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tickwheel.cli.command import command
from tickwheel.cli.listen_address import format_address, wait_until_served
from tickwheel.cli.metrics_option import metrics_address, serving_metrics, sharing_metrics
from tickwheel.cli.service_process import (
    ServeOptions,
    check_drive,
    driving,
    listen_address,
    log_ended,
    log_ending,
    log_serving,
    make_collector,
    make_server,
    serve_until_stopped,
)
from tickwheel.cli.target import Target
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.runtime.child_process import ChildProcess
from tickwheel.runtime.event_loop import run_in_uvloop
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.python_command import python_module
from tickwheel.runtime.signals import handle_in_thread, ignore_sigusr1
from tickwheel.service.startup_checks import check_exposure, check_private, check_readable
from tickwheel.worker.last_resort_driver import LastResortDriver

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.service.server import Server

_log = logging.getLogger("tickwheel.service")


@command(
    "serve",
    "tickwheel serve --url redis://localhost:6379",
    "tickwheel serve --url redis+cluster://redis1,redis2 --listen 127.0.0.1:7400",
)
def serve(target: Target, options: ServeOptions) -> None:
    """Serve the gRPC API of proto/tickwheel/v1. Any number of such processes can serve one Redis.

    If the namespace does not exist, the command creates it. The process stores nothing else: if it ends, its clients
    can continue with another process. If no event process drives the namespace, a child process of the service does,
    unless --drive is never. The log names the reason if the child cannot drive, and warns while nobody drives. The log
    goes to stderr.

    On SIGTERM or SIGINT, the process ends after it has answered the calls in flight. Calls that wait for messages
    return immediately. A second signal ends all calls.
    """
    address = listen_address(options.listen, shared=options.part)
    check_exposure(
        *(options.listen, address[0]),
        encrypted=options.tls_cert is not None,
        tokens=options.tokens is not None,
        insecure=options.insecure,
    )
    page = metrics_address(options.metrics, insecure=options.insecure)
    secrets = {"--tls-key": options.tls_key, "--tokens": options.tokens}
    for name, file in (secrets | {"--tls-cert": options.tls_cert, "--tls-client-ca": options.tls_client_ca}).items():
        check_readable(name, file)
    for name, file in secrets.items():
        check_private(name, file)
    log_to_stderr(json=target.json, verbose=options.verbose)
    ignore_sigusr1()
    how = check_drive(target, options)
    # With several processes, this server never runs. It is created so that an error in the options is reported once,
    # and not by every process.
    server = make_server(target, address, options)
    with sharing_metrics(page, how, _log) as how, driving(target, options, how) as driver:
        if options.processes > 1:
            _serve_with_processes(target, server, address, options, page, driver, how)
            return
        with serving_metrics(page, lambda: make_collector(server), _log, how):
            run_in_uvloop(serve_until_stopped(server, address[0], options, driver.begin_stop))


def _serve_with_processes(
    target: Target,
    server: "Server",
    address: tuple[str, int],
    options: ServeOptions,
    page: tuple[str, int] | None,
    driver: LastResortDriver,
    how: LastResortOptions | None,
) -> None:
    from tickwheel.service.multiprocess import reserve_port, run_processes
    from tickwheel.service.shared_quota import SharedQuotas

    host, port = address
    stopping = threading.Event()
    children: list[ChildProcess] = []

    def stop() -> None:
        # The second signal ends the calls in flight.
        for child in children if stopping.is_set() else ():
            child.kill()
        stopping.set()

    handle_in_thread({signal.SIGTERM: stop, signal.SIGINT: stop})
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with reserve_port(host, port) as shared_port, TemporaryDirectory(prefix="tickwheel-") as folder:
        listen = format_address(host, shared_port)
        command = python_module("tickwheel", "serve", "--part", "--listen", listen)
        sockets = [Path(folder, str(n)) for n in range(options.processes)] if page is not None else None
        with (
            run_processes(
                command + _part_options(target, options),
                target.environment(),
                options.processes,
                options.drain_s,
                sockets,
                None if options.tokens is None else SharedQuotas(options.processes),
            ) as started,
            serving_metrics(page, lambda: _make_multiprocess_collector(sockets or []), _log, how),
        ):
            children += started
            wait_until_served(host, shared_port, stopping)
            log_serving(server, f"{server.scheme}://{listen}", shared_port)
            stopping.wait()
            driver.begin_stop()
            log_ending(options.drain_s)
    log_ended()


def _part_options(target: Target, options: ServeOptions) -> list[str]:
    """Return the command line options of each process that this process starts."""
    values = {
        "durability": options.durability,
        "tls-cert": options.tls_cert,
        "tls-key": options.tls_key,
        "tls-client-ca": options.tls_client_ca,
        "tokens": options.tokens,
        "drain": f"{round(1_000 * options.drain_s)}ms",
        "max-connections": options.max_connections,
        "max-waiting": options.max_waiting,
        "max-shards": options.max_shards,
    }
    flags = {"insecure": options.insecure, "verbose": options.verbose, "json": target.json}
    return [
        *(f"--{name}={value}" for name, value in values.items() if value is not None),
        *(f"--{name}" for name, is_set in flags.items() if is_set),
    ]


def _make_multiprocess_collector(sockets: list[Path]) -> "Collector":
    from tickwheel.service.multiprocess_metrics import MultiprocessCollector

    return MultiprocessCollector(sockets)
