"""`tickwheel dev`: the service, its event process and an embedded server in one program, for development."""

import asyncio
from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.service_process import LISTEN, ServeOptions, listen_address, make_server, serve_until_stopped
from tickwheel.cli.target import Target
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.loopback import is_loopback
from tickwheel.runtime.signals import ignore_sigusr1


@command("dev", "tickwheel dev", "tickwheel dev --data-dir ./data --listen 127.0.0.1:7401")
def dev(
    target: Target,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the service.")] = LISTEN,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log at debug level.")] = False,
) -> None:
    """Run everything in one program, for development: an embedded server, its event process, and the gRPC service.

    Messages stay in the data directory when the program ends.
    """
    if target.url is not None:
        remedy = "unset the variable TICKWHEEL_URL" if target.url_is_from_environment else "leave --url out"
        raise InvalidArgument(f"dev starts a server of its own: {remedy}")
    address = listen_address(listen)
    if not is_loopback(address[0]):
        raise InvalidArgument(f"dev is for this machine only, and other machines can reach --listen {listen}")
    log_to_stderr(json=target.json, verbose=verbose)
    ignore_sigusr1()
    options = ServeOptions(listen)
    server = make_server(target, address, options)
    with target.open(drive=True):
        asyncio.run(serve_until_stopped(server, address[0], options))
