"""The two ways of a client: to the servers that keep messages, or to a server of this product, which asks them."""

from typing import Any

from tickwheel.async_io import AsyncIO
from tickwheel.async_servers import AsyncServerPools
from tickwheel.core import Core
from tickwheel.opening import Opening
from tickwheel.operations.direct import Direct
from tickwheel.operations.surface import Operations
from tickwheel.remote import connecting
from tickwheel.servers import ServerPools
from tickwheel.sync_io import SyncIO
from tickwheel.wake_task import WakeTask
from tickwheel.wake_thread import WakeThread


def operations(opening: Opening, core: Core) -> Operations:
    """What the client can do, as plans."""
    return connecting.operations(core) if opening.is_service else Direct(core, opening.durability)


def blocking(opening: Opening, core: Core, where: str) -> Any:
    """What carries the plans out for any threads: SyncIO, or BlockingChannelIO."""
    if opening.is_service:
        return connecting.blocking(opening)
    servers = ServerPools(where, opening.answer_s)
    io = SyncIO(servers, opening.shown, opening.seconds, opening.durability.replicas, opening.revive)
    io.wakes = WakeThread(servers, core.channels)
    return io


def on_this_loop(opening: Opening, core: Core, where: str) -> Any:
    """What carries them out in the tasks of the running event loop: AsyncIO, or AsyncChannelIO."""
    if opening.is_service:
        return connecting.on_this_loop(opening)
    servers = AsyncServerPools(where, opening.answer_s)
    io = AsyncIO(servers, opening.shown, opening.seconds, opening.durability.replicas, opening.revive)
    io.wakes = WakeTask(servers, core.channels)
    return io
