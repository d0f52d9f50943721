"""The backend and the executor for a client's URL: Redis or Valkey directly, or the gRPC service."""

from collections.abc import Callable
from typing import Any, cast

from tickwheel import tracing
from tickwheel.client.backend import Backend
from tickwheel.client.grpc import channel
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.redis_backend import RedisBackend
from tickwheel.client.settings import ClientSettings
from tickwheel.client.undriven_notice import UndrivenNotice
from tickwheel.operations.context import NamespaceContext
from tickwheel.redis.asyncio_executor import AsyncRedisExecutor
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.wakeup_task import WakeupTask
from tickwheel.redis.wakeup_thread import WakeupThread


def select_backend(
    client_settings: ClientSettings, context: NamespaceContext, notice: UndrivenNotice | None = None
) -> Backend:
    """Return the backend, which builds the plans of the client's operations. ``notice`` observes what it enqueues."""
    return (
        channel.create_backend(context, notice)
        if client_settings.is_service
        # With the clock of a test, the test runs the event process, step by step.
        else RedisBackend(context, client_settings.durability, notice if context.clock == "_clock" else None)
    )


def with_tracing(backend: Backend) -> Backend:
    """Return the backend, wrapped in spans if this program has set a tracer provider."""
    if not tracing.is_on():
        return backend
    from tickwheel.client.tracing_backend import TracingBackend

    return cast(Backend, TracingBackend(backend))


def blocking_executor(
    client_settings: ClientSettings, context: NamespaceContext, processes: LocalProcesses, server_url: str
) -> Any:
    """Return the thread-safe executor of plans: a RedisExecutor or a GrpcExecutor."""
    if client_settings.is_service:
        return channel.blocking_executor(client_settings)
    servers = ConnectionPools(server_url, client_settings.answer_s, is_embedded=processes.server is not None)
    io = RedisExecutor(servers, *_executor_arguments(client_settings, processes))
    io.wakeups = WakeupThread(servers, context.channels)
    return io


def asyncio_executor(
    client_settings: ClientSettings, context: NamespaceContext, processes: LocalProcesses, server_url: str
) -> Any:
    """Return the executor of plans in the running event loop: an AsyncRedisExecutor or an AsyncGrpcExecutor."""
    if client_settings.is_service:
        return channel.asyncio_executor(client_settings)
    servers = AsyncConnectionPools(server_url, client_settings.answer_s, is_embedded=processes.server is not None)
    io = AsyncRedisExecutor(servers, *_executor_arguments(client_settings, processes))
    io.wakeups = WakeupTask(servers, context.channels)
    return io


def _executor_arguments(
    client_settings: ClientSettings, processes: LocalProcesses
) -> tuple[str, float, int, Callable[[], None]]:
    """Return the arguments that both Redis executors take after their first argument, the connection pools."""
    return (
        client_settings.display_url,
        client_settings.timeout_s,
        client_settings.durability.replicas,
        processes.restart_embedded_server,
    )
