"""The HTTP endpoint that Prometheus scrapes. Needs the extra `metrics`."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from tickwheel.errors import InvalidArgument


def registry_of(collector: Collector) -> CollectorRegistry:
    """Return a registry with this collector alone, without the default metrics of the Python process."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def start_metrics_server(host: str, port: int, collector: Collector) -> Callable[[], None]:
    """Serve the metrics in a new thread, and return a function that stops the server and waits for the thread.

    Raises InvalidArgument if the server cannot listen on the address.
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
