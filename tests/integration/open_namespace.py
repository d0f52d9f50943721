"""A namespace as the service holds it, without the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tickwheel.client.settings import Opening
from tickwheel.operations.dequeue import Dequeue
from tickwheel.redis.asyncio_executor import in_thread
from tickwheel.redis.asyncio_pools import AsyncServerPools
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.testing import PrivateServer


@asynccontextmanager
async def open_namespace(server: PrivateServer, name: str) -> AsyncIterator[Namespace]:
    """On the event loop that runs."""
    opening = Opening(server.url, name, None, None, False, None)
    where = await in_thread(opening.open)
    namespaces = Namespaces(opening, AsyncServerPools(where, opening.answer_s))
    try:
        yield await namespaces.open(name)
    finally:
        await namespaces.close()
        await in_thread(opening.close)


def asked(of: Namespace, queue: str, request_id: str | None = None, *, limit: int = 1) -> Dequeue:
    """A call that does not wait."""
    return Dequeue(of.core, queue, limit, None, None, None, None, request_id, "heads")
