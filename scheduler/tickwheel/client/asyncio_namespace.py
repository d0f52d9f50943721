"""The methods of the asyncio client for the namespace, its queues and its settings."""

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from tickwheel.client import connect
from tickwheel.client.asyncio_queue import Message, Queue
from tickwheel.client.backend import Backend, Remover
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings, call_timeout_s
from tickwheel.errors import TickwheelError
from tickwheel.model.queue_config import QueueSettings
from tickwheel.model.validation import Duration
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.several_queues.dequeue_several import Named, QueueBatch, SeveralQueues
from tickwheel.plan import Effects, Plan

T = TypeVar("T")
Q = TypeVar("Q", bound=Named)


class NamespaceMethods:
    """The part of `Tickwheel` that runs plans. The subclass opens and closes the executor."""

    def __init__(self, client_settings: ClientSettings, clock: str) -> None:
        self._client_settings = client_settings
        self._processes = LocalProcesses(client_settings)
        self._context = NamespaceContext(
            client_settings.namespace,
            clock=clock,
            replicas=client_settings.durability.replicas,
            is_embedded=client_settings.url is None,
        )
        self._untraced_backend = connect.select_backend(client_settings, self._context, self._processes.notice)
        self._io: Any = None
        # If all calls of the client count as one call (`Admin.join_calls`): the effects of this call.
        self._effects: Effects | None = None

    def queue(self, name: str) -> Queue:
        """Return the queue ``name``, without a call to the server. Raises InvalidArgument."""
        return Queue(self, name)  # type: ignore[arg-type]  # every instance is a Tickwheel

    async def create_queue(
        self, name: str, *, update: bool = False, timeout: Duration | None = None, **config: Unpack[QueueSettings]
    ) -> Queue:
        """Create a queue and return it. The default of each setting of ``config`` is in parentheses.

        If the queue exists, check that it has this configuration. With ``update``, change the named settings instead.

        ``exclusive_key``: a metadata key. For each value of the key, at most one message is Running at a time.
        ``indexed``: the metadata keys that a filter (``where``) may use (default: all).
        ``lease`` (30 s), ``max_attempts`` (5), ``backoff`` (1 s), ``backoff_max`` (10 min), ``payload_limit`` (32 KiB):
        see the guide. A duration is a timedelta or a number of seconds.
        ``retention``: how long completed and cancelled messages are kept (10 min).
        ``errored_retention``: how long errored messages are kept (7 days).
        ``forecast``: count the messages that fall due in each minute (False).
        ``sink``: deliver due messages to ``kafka://topic`` instead of to workers; ``""`` removes the sink.
        Raises QueueConfigConflict, InvalidArgument.
        """
        queue = self.queue(name)
        await self._run(self._backend.create(queue.name, config, update=update), timeout=timeout)
        return queue

    async def queues(self, *, timeout: Duration | None = None) -> list[Queue]:
        """Return all queues of the namespace, sorted by name."""
        return [self.queue(name) for name in await self._run(self._backend.queues(), timeout=timeout)]

    async def delete_queue(self, name: str, *, purge: bool = False, timeout: Duration | None = None) -> int:
        """Delete a queue with its configuration, and return the number of messages that were removed.

        Without ``purge``, the queue may contain only completed and cancelled messages. With ``purge``, all messages are
        cancelled: workers that run some of them lose their leases. During the deletion, calls for the queue raise
        QueueBlocked. If the deletion fails, repeat it: if messages are left that are not finished, and you repeat the
        deletion without ``purge``, the queue works again. Otherwise, the queue can afterwards be created again with
        another configuration. Raises QueueNotFound, QueueNotEmpty, OutboxFull, InvalidArgument; DataLoss if
        the counters of the queue are damaged and ``purge`` is off.
        """
        return await self._remove_all(self._backend.delete_queue(self.queue(name).name, purge), timeout)

    async def delete_namespace(self, *, timeout: Duration | None = None) -> int:
        """Delete the namespace with all its data, and return the number of removed keys. Then close this client.

        No event process may drive the namespace, and the relay must have published all its events. Other clients of the
        namespace get errors from then on. If the deletion fails, repeat it, or run ``tickwheel namespace delete``.
        Raises NamespaceNotFound, NamespaceInUse, Forbidden.
        """
        return await self._remove_all(self._backend.delete_namespace(), timeout)

    async def settings(self, *, timeout: Duration | None = None) -> dict[str, str]:
        """Return all settings of the namespace, by name.

        A setting is a short text that your programs store under a name, and read while they run. Do not use settings
        for secrets.
        """
        return await self._run(self._backend.settings(), timeout=timeout)

    async def setting(self, name: str, *, timeout: Duration | None = None) -> str | None:
        """Return the value of a setting, read from the metadata shard, or None if the setting is not set."""
        return await self._run(self._backend.setting(name), timeout=timeout)

    async def set_setting(self, name: str, value: str | None, *, timeout: Duration | None = None) -> None:
        """Set a setting of up to 1 KiB; None removes the setting. Raises InvalidArgument."""
        await self._run(self._backend.set_setting(name, value), timeout=timeout)

    async def _dequeue(
        self, queue: str, options: DequeueOptions, is_stopped: Callable[[], bool] | None = None
    ) -> list[Message]:
        """Dequeue messages, for a program that can be stopped: the call then ends soon, even without an answer."""
        messages = await self._run(self._backend.dequeue(queue, options, Message), is_stopped=is_stopped)
        return self._attach_to(messages)

    async def _dequeue_several(
        self, several: SeveralQueues[Q, Message], seconds: float, is_stopped: Callable[[], bool] | None = None
    ) -> QueueBatch[Q, Message]:
        """Take a batch of one of several queues (`SeveralQueues.plan`). ``is_stopped``: see `_dequeue`."""
        batch = await self._run(several.plan(self._backend, seconds), is_stopped=is_stopped)
        self._attach_to(batch.messages)
        return batch

    def _attach_to(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message._tickwheel = self  # type: ignore[assignment]  # every instance is a Tickwheel
        return messages

    @property
    def _backend(self) -> Backend:
        return connect.with_tracing(self._untraced_backend)

    async def _remove_all(self, remover: Remover, timeout: Duration | None) -> int:
        """Run all steps of a removal as one call, and return the number of removed messages or keys."""
        effects = self._effects or Effects()
        removed = 0
        while not remover.ended:
            removed += await self._run(remover.next(), effects, timeout=timeout)
        return removed

    async def _run(
        self,
        plan: Plan[T],
        effects: Effects | None = None,
        *,
        timeout: Duration | None = None,
        for_producer: bool = False,
        is_stopped: Callable[[], bool] | None = None,
    ) -> T:
        """Run a plan. ``effects``: those of the call, if the plan is a part of a call.

        ``timeout`` is that of the call. The default is that of the client, which has its own for the calls that
        producers make. Raises InvalidArgument for a wrong timeout. ``is_stopped`` ends the retries
        (`RetryBudget`).
        """
        if timeout is not None:
            timeout_s: float | None = call_timeout_s(timeout)
        else:
            timeout_s = self._client_settings.producer_timeout_s if for_producer else None
        # asyncio: only this client needs the check. The blocking client is open from the start, and its executor
        # rejects calls after `close`.
        if self._io is None:
            plan.close()
            raise TickwheelError(
                f"{self!r} is closed, or not opened yet: use the client in `async with`, or await its open()"
            )

        result: T = await self._io.run(plan, effects or self._effects, timeout_s, is_stopped)
        return result
