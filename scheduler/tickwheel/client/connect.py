"""The two ways of a client: to the servers that keep messages, or to a server of this product, which asks them."""

from typing import Any

from tickwheel.client.backend import Operations
from tickwheel.client.grpc import channel as connecting
from tickwheel.client.redis_backend import Direct
from tickwheel.client.settings import Opening
from tickwheel.operations.context import Core
from tickwheel.redis.asyncio_executor import AsyncIO
from tickwheel.redis.asyncio_pools import AsyncServerPools
from tickwheel.redis.blocking_executor import SyncIO
from tickwheel.redis.pools import ServerPools
from tickwheel.redis.wakeup_task import WakeTask
from tickwheel.redis.wakeup_thread import WakeThread


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
