"""The option --metrics of long-running commands."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tickwheel.cli.listen_address import parse_address
from tickwheel.errors import InvalidArgument

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


def metrics_address(text: str) -> tuple[str, int]:
    """Return the address of the metrics endpoint. Raises InvalidArgument."""
    use, cannot = "--metrics must be HOST:PORT, like 127.0.0.1:9464", "--metrics: cannot listen on"
    return parse_address(text, use, cannot, min_port=1)


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
        raise InvalidArgument(f"metrics need {error.name}: install tickwheel[metrics]") from error
    host, port = address
    log.info("metrics on http://%s:%d/metrics", host, port, extra={"fields": {"event": "metrics", "port": port}})
    stop = start_metrics_server(*address, collects)
    try:
        yield
    finally:
        stop()
