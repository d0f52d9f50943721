"""The open namespaces of one process of the service. The first call that names a namespace opens it."""

import logging
import math
import random
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Final, TypeVar

from tickwheel import limits
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import NamespaceNotFound, TickwheelError
from tickwheel.model import validation
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.namespace import open_namespace, read_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.operations.server_checks import check_server
from tickwheel.operations.server_info import find_vulnerabilities
from tickwheel.plan import Effects, Plan
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.redis.caller_channels import CallerChannels
from tickwheel.redis.wakeup_task import WakeupTask
from tickwheel.service.answer_limits import AnswerLimits, Turn
from tickwheel.service.batching.coalescing_executor import CoalescingExecutor
from tickwheel.service.batching.enqueue_batcher import EnqueueBatcher
from tickwheel.service.batching.poll_coalescer import PollCoalescer
from tickwheel.service.counters import Counters
from tickwheel.service.driver_check import OWN_QUIET_S, CheckPace, DriverCheck
from tickwheel.service.fair_limit import SizedTurns
from tickwheel.v1.queue_service_pb2 import OpenNamespaceRequest

T = TypeVar("T")

# The usual size of a leased message without its payload.
_MESSAGE_BYTES: Final = 1_024
# The number of open namespaces that are checked when another one is opened.
_CHECKED: Final = 2

_log = logging.getLogger("tickwheel.service")


class Namespace:
    """One open namespace: its context, the executor of its plans, the task that wakes its waiting calls, and the
    batchers in front of the executor.
    """

    def __init__(
        self,
        context: NamespaceContext,
        executor: CoalescingExecutor,
        wakeups: WakeupTask,
        counters: Counters,
        answers: AnswerLimits,
        check_pace: CheckPace,
        driven_until: float = 0.0,
    ) -> None:
        """``driven_until``: see `DriverCheck`."""
        self.context = context
        self.counters = counters
        self._answers = answers
        self._executor = executor
        self.wakeups = wakeups
        # Whether a call has used the namespace since `NamespaceAlarm` has warned about it.
        self.is_used = True
        self.driver_check = DriverCheck(context, self.run, check_pace, driven_until)
        self.enqueue_batcher = EnqueueBatcher(
            context, executor.uncoalesced.run, counters.group_sizes, wakeups.has_waiter, executor.run
        )
        self.poll_coalescer = PollCoalescer(self.run, self.dequeue)

    async def run(self, plan: Plan[T], effects: Effects | None = None) -> T:
        """Run a plan. ``effects``: those of the call, if the plan is a part of a call."""
        return await self._executor.run(plan, effects)

    async def dequeue(self, dequeue: Dequeue) -> list[LeasedMessage]:
        """Run a dequeue in a turn, and return the leased messages. If its options set a wait, the dequeue waits for
        messages. The turn is paused meanwhile.

        Raises LimitExceeded if the caller has left too many answers unread: before the call, or after a wait for a
        message, a subscription or another search. The dequeue then has leased no message.
        """
        async with Turn(self._answers, self._answer_bytes(dequeue)):
            return await self.run(dequeue.plan(LeasedMessage))

    def _answer_bytes(self, dequeue: Dequeue) -> int:
        if dequeue.may_be_repeated:
            # Several calls with the same request id may have leased messages on different shards at the same time. The
            # answer has the messages of all of them.
            return limits.UNLIMITED_ANSWER_BYTES
        config = self.context.configs.get(dequeue.coalescing_key[0])
        if config is None:
            return limits.ANSWER_BYTES
        return min(limits.ANSWER_BYTES, dequeue.limit * (config.payload_limit + _MESSAGE_BYTES))


class Namespaces:
    """All open namespaces. They share the connections to one server or cluster."""

    def __init__(
        self,
        client_settings: ClientSettings,
        processes: LocalProcesses,
        servers: AsyncConnectionPools,
        clock: str = "_clock",
        counters: Counters | None = None,
        answers: AnswerLimits | None = None,
        created_shards: int = limits.CREATED_SHARDS,
    ) -> None:
        """``created_shards``: the maximum number of shards of a namespace that a client creates."""
        self._client_settings = client_settings
        self._processes = processes
        self._servers = servers
        self._clock = clock
        self._counters = counters or Counters()
        self.answers = answers or AnswerLimits()
        self._created_shards = created_shards
        self._caller_channels = CallerChannels()
        self._check_pace = CheckPace()
        self._round_turns = SizedTurns(limits.CALLER_ROUND_REQUESTS)
        self.group_turns = SizedTurns(limits.CALLER_DEQUEUE_GROUPS)
        """The turns of the groups of `DequeueBatch`."""
        self.by_name: dict[str, Namespace] = {}
        """The namespaces that calls have opened so far."""
        self._own_driven_until = monotonic() + OWN_QUIET_S

    async def check(self) -> None:
        """Check that the Redis server is supported and durable enough; see `check_server`, which raises the errors.

        Log a warning if the version of the server has a known vulnerability.
        """
        executor = self._make_executor()
        await executor.run(check_server(self._client_settings.durability, self._client_settings.namespace))
        for warning in await executor.run(find_vulnerabilities()):
            _log.warning("%s", warning)

    def count_shards(self, request: Any) -> int:
        """Return the number of shards of the namespace that a request names; 1 if the namespace is not open yet.

        For `OpenNamespace`, return the number of shards that the call may create.
        """
        namespace = self.by_name.get(request.namespace or "tw")
        is_open = namespace is not None and not namespace.context.is_lost
        if isinstance(request, OpenNamespaceRequest):
            return 1 if is_open or request.existing else min(request.shards, self._created_shards)
        return 1 if namespace is None else namespace.context.shards

    async def get(self, name: str) -> Namespace:
        """Return a namespace. Open it if necessary. Raises NamespaceNotFound if it does not exist."""
        namespace = self.by_name.get(name or "tw")
        if namespace is not None and not namespace.context.is_lost:
            namespace.is_used = True
            return namespace
        try:
            return await self.open(name, NamespaceOptions(existing=True))
        except NamespaceNotFound:
            await self._drop_lost(name or "tw")
            raise

    def limit_creation(self, options: NamespaceOptions) -> NamespaceOptions:
        """Return the options of a client with the limit for the namespaces that clients create."""
        return replace(options, created_shards=self._created_shards)

    async def open(self, name: str, options: NamespaceOptions) -> Namespace:
        """Open the namespace with the plan `open_namespace`, which creates the namespace or checks its settings."""
        name = validation.plain_name("namespace", name or "tw")
        context = NamespaceContext(name, clock=self._clock, replicas=self._client_settings.durability.replicas)
        executor = self._make_executor()
        executor.wakeups = wakeups = WakeupTask(self._servers, context.channels, self._caller_channels)
        await executor.run(open_namespace(context, options))
        # If another call has opened the namespace in the meantime, keep its `Namespace`, unless it is lost since then.
        await self._drop_lost(name)
        if (current := self.by_name.get(name)) is not None:
            return current
        await self._drop_deleted()
        shared = self._counters, self.answers, self._check_pace, self._driven_until(name)
        return self.by_name.setdefault(name, Namespace(context, executor, wakeups, *shared))

    async def delete(self, name: str, page_token: str) -> tuple[int, str]:
        """Take the next step of the deletion of a namespace (`NamespaceDeletion`), which need not be open.

        Return the number of removed keys and the token of the next step. Raises InvalidArgument.
        """
        name = validation.plain_name("namespace", name or "tw")
        deletion = NamespaceDeletion(NamespaceContext(name, clock=self._clock), page_token)
        removed = await self._make_executor().run(deletion.next())
        if (current := self.by_name.get(name)) is not None:
            current.context.is_lost = True
            if deletion.ended:
                await self._drop_lost(name)
        return removed, deletion.token

    async def _drop_deleted(self) -> None:
        """Check some open namespaces, because other programs delete namespaces, too, and forget those that are deleted.

        There are two checks for each namespace that is opened. So about as many deleted ones as others stay open.
        """
        executor = self._make_executor()
        for name, current in random.sample(list(self.by_name.items()), min(_CHECKED, len(self.by_name))):
            with suppress(TickwheelError):
                if not await executor.run(read_namespace(NamespaceContext(name, clock=self._clock))):
                    current.context.is_lost = True
                    await self._drop_lost(name)

    async def _drop_lost(self, name: str) -> None:
        """Forget the namespace if it no longer exists, and wake its waiting calls, which then end with an error."""
        current = self.by_name.get(name)
        if current is not None and current.context.is_lost:
            del self.by_name[name]
            await current.wakeups.stop()

    def _driven_until(self, name: str) -> float:
        """Return the time until which a namespace counts as driven, because the service may be about to drive it."""
        is_own = name == self._client_settings.namespace
        # With the clock of a test, the test moves the timers. The own namespace of an embedded server is driven while
        # the service runs.
        if self._clock != "_clock" or (is_own and self._client_settings.url is None):
            return math.inf
        return self._own_driven_until if is_own else 0.0

    def _make_executor(self) -> CoalescingExecutor:
        client_settings = self._client_settings
        return CoalescingExecutor(
            self._servers,
            client_settings.display_url,
            client_settings.timeout_s,
            client_settings.durability.replicas,
            self._processes.restart_embedded_server,
            turns=self._round_turns,
        )

    async def close(self) -> None:
        """Stop all namespaces, and close the connections."""
        for namespace in self.by_name.values():
            await namespace.wakeups.stop()
        await self._servers.close()
