"""What a client of a grpc:// URL is made of. Needs the extra `grpc`."""

from typing import TYPE_CHECKING, Any

from tickwheel import urls
from tickwheel.core import Core
from tickwheel.errors import InvalidArgument
from tickwheel.opening import Opening
from tickwheel.operations.surface import Operations

if TYPE_CHECKING:
    from tickwheel.remote.async_io import AsyncChannelIO
    from tickwheel.remote.blocking_io import BlockingChannelIO

# An answer may hold 1,000 payloads; a connection that is dead is noticed while a call waits.
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def blocking(opening: Opening) -> "BlockingChannelIO":
    """A channel for any threads."""
    grpc = _library()
    from tickwheel.remote.blocking_io import BlockingChannelIO

    assert opening.url is not None
    channel = grpc.insecure_channel(urls.target(opening.url), options=_OPTIONS)
    return BlockingChannelIO(channel, opening.shown, opening.seconds)


def on_this_loop(opening: Opening) -> "AsyncChannelIO":
    """A channel for the tasks of the running event loop."""
    grpc = _library()
    from tickwheel.remote.async_io import AsyncChannelIO

    assert opening.url is not None
    channel = grpc.aio.insecure_channel(urls.target(opening.url), options=_OPTIONS)
    return AsyncChannelIO(channel, opening.shown, opening.seconds)


def operations(core: Core) -> Operations:
    """What is asked of the server."""
    _library()
    from tickwheel.remote.operations import Remote

    return Remote(core)


def _library() -> Any:
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise InvalidArgument("a grpc:// url needs the extra: pip install 'tickwheel[grpc]'") from error
    return grpc
