"""A namespace with the queue `jobs`, for the tests of a service."""

from collections.abc import Iterator
from contextlib import contextmanager

from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer


@contextmanager
def jobs_namespace(server: PrivateServer, namespace: str) -> Iterator[None]:
    """Create the namespace and the queue, and remove all keys of the namespace at the end of the ``with`` block."""
    with Tickwheel(server.url, namespace=namespace, drive=False) as tickwheel:
        tickwheel.create_queue("jobs")
    yield
    server.clear(namespace)
