"""The option --metrics of long-running commands."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.listen_address import parse_address
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.loopback import is_loopback

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


# For commands without another use of --insecure.
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow other machines to read the metrics, which are not encrypted.")
]


def metrics_address(text: str | None, *, insecure: bool) -> tuple[str, int] | None:
    """Return the address of the metrics endpoint, or None without ``text``. Raises InvalidArgument.

    Other machines may read the metrics only if ``insecure`` is set.
    """
    if text is None:
        return None
    use, cannot = "--metrics must be HOST:PORT, like 127.0.0.1:9464", "--metrics: cannot listen on"
    address = parse_address(text, use, cannot, min_port=1)
    if not insecure and not is_loopback(address[0]):
        raise InvalidArgument(
            f"other machines can reach --metrics {text}, without encryption: use a loopback address, like"
            f" 127.0.0.1:{address[1]}, or accept it with --insecure"
        )
    return address


@contextmanager
def sharing_metrics(
    address: tuple[str, int] | None, how: LastResortOptions | None, log: logging.Logger
) -> Iterator[LastResortOptions | None]:
    """Yield the options of a program that drives as a last resort. If the program serves metrics on an address, its
    child serves its own metrics to the program, until the end of the block.

    If the program has no folder for the socket of the child, log this: the child drives without metrics.
    """
    if address is None or how is None:
        yield how
        return
    try:
        # Only this user has access to the folder.
        folder = TemporaryDirectory(prefix="tickwheel-", ignore_cleanup_errors=True)
    except OSError as error:
        log.warning("the metrics page will lack the metrics of the child that drives: %s", error)
        yield how
        return
    with folder as name:
        yield replace(how, metrics_socket=Path(name, "driver"))


@contextmanager
def serving_metrics(
    address: tuple[str, int] | None,
    collector: Callable[[], "Collector"],
    log: logging.Logger,
    how: LastResortOptions | None = None,
    find_problem: Callable[[], str] | None = None,
) -> Iterator[None]:
    """Serve the metrics of ``collector()`` during the ``with`` block. Without an address, do nothing.

    ``how``: the program drives as a last resort. The page has the metrics that its child serves to the program, too.
    ``find_problem`` is the health check of the program (`start_metrics_server`).
    Raises InvalidArgument if the extra `metrics` is not installed.
    """
    if address is None:
        yield
        return
    try:
        from tickwheel.telemetry.metrics_server import start_metrics_server
        from tickwheel.telemetry.metrics_socket import SocketMetrics

        collectors = [collector()]
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"metrics need {error.name}: {describe_install('metrics')}") from error
    if how is not None and how.metrics_socket is not None:
        collectors.append(SocketMetrics(how.metrics_socket))
    host, port = address
    log.info("metrics on http://%s:%d/metrics", host, port, extra={"fields": {"event": "metrics", "port": port}})
    stop = start_metrics_server(*address, *collectors, find_problem=find_problem)
    try:
        yield
    finally:
        stop()
