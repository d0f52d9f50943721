"""The option --metrics of long-running commands."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.listen_address import parse_address
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
def serving_metrics(
    address: tuple[str, int] | None, collector: Callable[[], "Collector"], log: logging.Logger
) -> Iterator[None]:
    """Serve the metrics of ``collector()`` during the ``with`` block. Without an address, do nothing.

    Raises InvalidArgument if the extra `metrics` is not installed.
    """
    if address is None:
        yield
        return
    try:
        from tickwheel.telemetry.metrics_server import start_metrics_server

        collects = collector()
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"metrics need {error.name}: {describe_install('metrics')}") from error
    host, port = address
    log.info("metrics on http://%s:%d/metrics", host, port, extra={"fields": {"event": "metrics", "port": port}})
    stop = start_metrics_server(*address, collects)
    try:
        yield
    finally:
        stop()
