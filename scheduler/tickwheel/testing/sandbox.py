"""A namespace for one test, with its clients and its clock. Nothing of it remains after the test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from tickwheel import aio
from tickwheel.client import Tickwheel
from tickwheel.testing.private_server import PrivateServer
from tickwheel.testing.virtual_clock import FRAGMENT, VirtualClock


@contextmanager
def sandbox(
    server: PrivateServer,
    *,
    shards: int = 1,
    now: datetime | None = None,
    history: str = "capped",
    auto_create: bool = True,
) -> Iterator[tuple[Tickwheel, VirtualClock]]:
    """Create a namespace, and yield a client of the namespace and its clock. Delete the namespace at the end.

    ``now`` is the time at which the clock starts, an aware datetime; the default is the present. The other arguments
    are those of `Tickwheel`.
    """
    namespace = f"test-{os.urandom(6).hex()}"
    with Tickwheel(
        server.url, namespace=namespace, shards=shards, history=history, auto_create=auto_create, clock=FRAGMENT
    ) as tickwheel:
        clock, process = VirtualClock(server.url, namespace, now), os.getpid()
        try:
            yield tickwheel, clock
        finally:
            # A forked child of the test must not delete the namespace.
            if os.getpid() == process:
                clock.close()
                server.clear(namespace)


def aio_client(server: PrivateServer, tickwheel: Tickwheel) -> aio.Tickwheel:
    """Return an asyncio client of the same namespace and clock. The caller opens the client."""
    return aio.Tickwheel(server.url, namespace=tickwheel._context.namespace, clock=FRAGMENT)
