"""A namespace as the service opens it, without the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.runtime.event_loop import run_in_thread
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.testing import PrivateServer


@asynccontextmanager
async def open_namespace(server: PrivateServer, name: str) -> AsyncIterator[Namespace]:
    """Open the namespace on the running event loop."""
    client_settings = ClientSettings.validate(server.url, name, None, None, False, None)
    processes = LocalProcesses(client_settings)
    where = await run_in_thread(processes.open)
    namespaces = Namespaces(client_settings, processes, AsyncConnectionPools(where, client_settings.answer_s))
    try:
        yield await namespaces.open(name, NamespaceOptions())
    finally:
        await namespaces.close()
        await run_in_thread(processes.close)


def make_dequeue(of: Namespace, queue: str, request_id: str | None = None, *, limit: int = 1) -> Dequeue:
    """Return a call that does not wait."""
    return Dequeue(of.context, queue, DequeueOptions.parse(limit, request_id=request_id))
