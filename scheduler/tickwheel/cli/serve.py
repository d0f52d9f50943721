"""`tickwheel serve`: the gRPC service, for programs that do not go to the server themselves."""

import asyncio
import logging
import signal
import sys
from datetime import timedelta
from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.log import log_to_stderr
from tickwheel.cli.notation import duration, option
from tickwheel.cli.place import TIMEOUT, Place
from tickwheel.errors import InvalidArgument
from tickwheel.opening import Opening
from tickwheel.service.address import is_loopback, parse_address

commands = typer.Typer()
_DRAIN = timedelta(seconds=10)
_log = logging.getLogger("tickwheel.service")


@command(
    commands,
    "serve",
    "tickwheel serve --url redis://localhost:6379",
    "tickwheel serve --url redis+cluster://redis1,redis2 --listen 127.0.0.1:7400",
    panel="Processes",
)
def serve(
    place: Place,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 is any that is free, which the log names.")
    ] = "127.0.0.1:7400",
    durability: Annotated[
        str | None,
        typer.Option(help="What an answered call has reached: memory, fsync or replica:N. By default memory."),
    ] = None,
    drain: Annotated[
        timedelta | None,
        typer.Option(
            parser=option(duration),
            metavar="DURATION",
            help="How long calls under way may take to end after SIGTERM (default 10s).",
        ),
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
    host, port = parse_address(listen, "--listen")
    if not insecure and not is_loopback(host):
        raise InvalidArgument(
            f"--listen {listen} is reached from other machines, and nothing would be encrypted: --insecure accepts that"
        )
    log_to_stderr(json=place.json, verbose=verbose)
    timeout = TIMEOUT if place.timeout is None else place.timeout
    opening = Opening(place.url, place.namespace or "tw", place.data_dir, durability, False, timeout)
    if opening.is_service:
        raise InvalidArgument("--url is where messages are kept, not another server of this product")
    asyncio.run(_serve(opening, host, port, (_DRAIN if drain is None else drain).total_seconds()))


async def _serve(opening: Opening, host: str, port: int, drain_s: float) -> None:
    try:
        from tickwheel.service.server import Server
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the service needs {error.name}: install tickwheel[grpc]") from error
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = Server(opening, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await server.start()
    print(f"serving grpc://{host}:{server.port}", file=sys.stderr, flush=True)
    try:
        await stopping.wait()
        _log.info("ending: %g s for the calls under way", drain_s)
    finally:
        await server.stop(drain_s)
    _log.info("ended")
