"""The channel, the backend and the executors of a client with a grpc:// URL. Needs the extra `grpc`."""

from typing import TYPE_CHECKING, Any

from tickwheel.client.backend import Backend
from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import InvalidArgument
from tickwheel.operations.context import NamespaceContext
from tickwheel.rpc.url import GrpcUrl
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.loopback import is_loopback_name

if TYPE_CHECKING:
    from tickwheel.client.grpc.asyncio_executor import AsyncGrpcExecutor
    from tickwheel.client.grpc.blocking_executor import GrpcExecutor
    from tickwheel.client.undriven_notice import UndrivenNotice

Metadata = tuple[tuple[str, str], ...]

# Receive size: a service of an earlier version sends up to 1,000 payloads of 256 KiB, with their metadata. Keepalive:
# detects a dead connection while a call waits. Retries: off, because `CallRetry` retries calls and marks them as
# retries. Reconnect back-off: short, so that the client finds a restarted service within about 1 s, and a service with
# a new address within 5 s. By default, grpc would wait up to two minutes, and leases would end during the wait.
_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
    ("grpc.max_receive_message_length", 300 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
# By default, grpc sends a call through the proxy that the environment names (`http_proxy` and three other variables),
# even a call to this machine. Without TLS, the proxy could read the token and all messages. A proxy on another machine
# also cannot reach a service of this machine. The first option concerns proxies for names, the second proxies for
# addresses (GRPC_ADDRESS_HTTP_PROXY).
_NO_PROXY = [("grpc.enable_http_proxy", 0), ("grpc.address_http_proxy_enabled_addresses", "")]


def blocking_executor(settings: ClientSettings) -> "GrpcExecutor":
    """Return a thread-safe executor. Raises InvalidArgument if a file that the URL names cannot be read."""
    grpc = _import_grpc()
    from tickwheel.client.grpc.blocking_executor import GrpcExecutor

    return GrpcExecutor(*_connection(settings, grpc))


def asyncio_executor(settings: ClientSettings) -> "AsyncGrpcExecutor":
    """Return an executor for the running event loop. Raises InvalidArgument as `blocking_executor` does."""
    grpc = _import_grpc()
    from tickwheel.client.grpc.asyncio_executor import AsyncGrpcExecutor

    return AsyncGrpcExecutor(*_connection(settings, grpc.aio))


def create_backend(context: NamespaceContext, notice: "UndrivenNotice | None" = None) -> Backend:
    """Return the backend. Raises InvalidArgument if the extra `grpc` is not installed."""
    _import_grpc()
    from tickwheel.client.grpc.grpc_backend import GrpcBackend

    return GrpcBackend(context, notice)


def _connection(settings: ClientSettings, channels: Any) -> tuple[Any, str, float, HandshakeProbe, Metadata]:
    """Return a channel of `grpc` or `grpc.aio`, and the other arguments of both executors."""
    url = GrpcUrl.parse(settings.url or "")
    options = _OPTIONS if url.encrypted and not is_loopback_name(url.host) else [*_OPTIONS, *_NO_PROXY]
    if url.encrypted:
        files = (url.read("tls_ca"), url.read("tls_key"), url.read("tls_cert"))
        credentials = _import_grpc().ssl_channel_credentials(*files)
        channel = channels.secure_channel(url.target, credentials, options=options)
    else:
        channel = channels.insecure_channel(url.target, options=options)
    metadata = (("authorization", f"Bearer {url.token}"),) if url.token else ()
    return channel, settings.display_url, settings.timeout_s, HandshakeProbe(url, settings.display_url), metadata


def _import_grpc() -> Any:
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise InvalidArgument(f"a grpc:// url needs {error.name}: {describe_install('grpc')}") from error
    return grpc
