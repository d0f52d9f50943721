"""The namespaces that a server of this product serves: each opened by the first call that names it."""

from typing import TypeVar

from tickwheel.client.settings import Opening
from tickwheel.model import validation as arguments
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.context import Core
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.server_checks import check_server
from tickwheel.plan import Plan
from tickwheel.redis.asyncio_pools import AsyncServerPools
from tickwheel.redis.wakeup_task import WakeTask
from tickwheel.service.coalescing_executor import TogetherIO
from tickwheel.service.counters import Figures
from tickwheel.service.enqueue_batcher import Enqueuing
from tickwheel.service.poll_coalescer import Polling

T = TypeVar("T")


class Namespace:
    """One namespace: its core, and what carries out plans on it."""

    def __init__(self, core: Core, io: TogetherIO, figures: Figures) -> None:
        self.core = core
        self._io = io
        self.enqueuing = Enqueuing(core, io.apart.run, figures.groups, self.waited_for)
        self.polling = Polling(self.run)

    async def run(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        return await self._io.run(plan)

    async def take(self, asked: Dequeue) -> list[LeasedMessage]:
        """Carry out a dequeue."""
        return await self.run(asked.plan(LeasedMessage))

    @property
    def parked(self) -> int:
        """How many calls wait for messages."""
        return 0 if self._io.wakes is None else self._io.wakes.parked

    def waited_for(self, queue: str) -> bool:
        """Whether a call waits for messages of the queue."""
        return self._io.wakes is not None and self._io.wakes.waited_for(queue)

    @property
    def woken(self) -> int:
        """How often one of them was woken."""
        return 0 if self._io.wakes is None else self._io.wakes.woken

    async def stop(self) -> None:
        """End what wakes those who wait."""
        if self._io.wakes is not None:
            await self._io.wakes.stop()


class Namespaces:
    """All of them, on the connections of one server or cluster."""

    def __init__(
        self, opening: Opening, servers: AsyncServerPools, clock: str = "_clock", figures: Figures | None = None
    ) -> None:
        self._opening = opening
        self._servers = servers
        self._clock = clock
        self._figures = figures or Figures()
        self._open: dict[str, Namespace] = {}

    @property
    def open_ones(self) -> list[Namespace]:
        """Those that calls have named so far."""
        return list(self._open.values())

    async def check(self) -> None:
        """Refuse a server that messages cannot be trusted to; see `check_server`."""
        name = self._opening.namespace
        await self._io(Core(name)).run(check_server(self._opening.durability, name))

    async def get(self, name: str) -> Namespace:
        """The namespace, which is there. Raises NamespaceNotFound."""
        found = self._open.get(name or "tw")
        if found is not None and not found.core.is_lost:
            return found
        return await self.open(name, existing=True)

    async def open(self, name: str, shards: int | None = None, **asked: object) -> Namespace:
        """The namespace, made where it is not there and checked where it is; see `open_namespace`."""
        name = arguments.plain_name("namespace", name or "tw")
        core = Core(name, clock=self._clock)
        io = self._io(core)
        await io.run(open_namespace(core, shards, **asked))  # type: ignore[arg-type]  # checked there
        # Two that open it at once agree here: the first stays, unless it was lost.
        found = self._open.get(name)
        if found is None or found.core.is_lost:
            self._open[name] = Namespace(core, io, self._figures)
            if found is not None:
                await found.stop()
        return self._open[name]

    def _io(self, core: Core) -> TogetherIO:
        opening = self._opening
        io = TogetherIO(self._servers, opening.shown, opening.seconds, opening.durability.replicas, opening.revive)
        io.wakes = WakeTask(self._servers, core.channels)
        return io

    async def close(self) -> None:
        """End all of them, and close the connections."""
        for namespace in self._open.values():
            await namespace.stop()
        await self._servers.close()
