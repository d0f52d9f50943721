"""What a client of a grpc:// URL is made of. Needs the extra `grpc`."""

from typing import TYPE_CHECKING, Any

from tickwheel.client.backend import Backend
from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import InvalidArgument
from tickwheel.operations.context import NamespaceContext
from tickwheel.rpc.url import GrpcUrl

if TYPE_CHECKING:
    from tickwheel.client.grpc.asyncio_executor import AsyncGrpcExecutor
    from tickwheel.client.grpc.blocking_executor import GrpcExecutor

# An answer may hold 1,000 payloads; a connection that is dead is noticed while a call waits. `CallRetry` tries again,
# and says so in the request: the library does not. A service that is back is found within a second or so, and at
# another address of its name within 5: by itself the library waits up to two minutes, and leases end meanwhile.
_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]


def blocking_executor(client_settings: ClientSettings) -> "GrpcExecutor":
    """A channel for any threads. Raises InvalidArgument where a file of the URL cannot be read."""
    grpc = _import_grpc()
    from tickwheel.client.grpc.blocking_executor import GrpcExecutor

    url = GrpcUrl.parse(client_settings.url or "")
    if url.encrypted:
        channel = grpc.secure_channel(url.target, _channel_credentials(grpc, url), options=_OPTIONS)
    else:
        channel = grpc.insecure_channel(url.target, options=_OPTIONS)
    return GrpcExecutor(
        channel,
        client_settings.display_url,
        client_settings.timeout_s,
        HandshakeProbe(url, client_settings.display_url),
        _metadata(url),
    )


def asyncio_executor(client_settings: ClientSettings) -> "AsyncGrpcExecutor":
    """A channel for the tasks of the running event loop. Raises as `blocking`."""
    grpc = _import_grpc()
    from tickwheel.client.grpc.asyncio_executor import AsyncGrpcExecutor

    url = GrpcUrl.parse(client_settings.url or "")
    if url.encrypted:
        channel = grpc.aio.secure_channel(url.target, _channel_credentials(grpc, url), options=_OPTIONS)
    else:
        channel = grpc.aio.insecure_channel(url.target, options=_OPTIONS)
    return AsyncGrpcExecutor(
        channel,
        client_settings.display_url,
        client_settings.timeout_s,
        HandshakeProbe(url, client_settings.display_url),
        _metadata(url),
    )


def create_backend(context: NamespaceContext) -> Backend:
    """What is asked of the server."""
    _import_grpc()
    from tickwheel.client.grpc.grpc_backend import GrpcBackend

    return GrpcBackend(context)


def _channel_credentials(grpc: Any, url: GrpcUrl) -> Any:
    return grpc.ssl_channel_credentials(url.read("tls_ca"), url.read("tls_key"), url.read("tls_cert"))


def _metadata(url: GrpcUrl) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {url.token}"),) if url.token else ()


def _import_grpc() -> Any:
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise InvalidArgument("a grpc:// url needs the extra: pip install 'tickwheel[grpc]'") from error
    return grpc
