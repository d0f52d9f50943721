"""Figures over HTTP for Prometheus. Needs the extra `metrics`."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from tickwheel.errors import InvalidArgument


def registry_of(collector: Collector) -> CollectorRegistry:
    """This collector's figures and no others."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def start_metrics_server(host: str, port: int, collector: Collector) -> Callable[[], None]:
    """Serve the figures in a thread of its own; answers what stops it. Raises InvalidArgument where the address cannot
    be listened on.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=registry_of(collector))
    except OSError as error:
        raise InvalidArgument(f"metrics cannot be served on {host}:{port}: {error}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
