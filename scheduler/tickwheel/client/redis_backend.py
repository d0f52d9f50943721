"""The operations of a client that calls the shards directly."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tickwheel.client import driver_watch
from tickwheel.client.expected_queues import ExpectedQueues
from tickwheel.client.undriven_notice import UndrivenNotice
from tickwheel.errors import Forbidden, QueueConfigConflict, QueueNotFound
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.model.validation import Duration
from tickwheel.operations import cancel, explain, inspect, queues, redrive, reschedule, settings, settle
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.enqueue import enqueue_many
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.operations.removal.purge import Purge
from tickwheel.operations.resume_lease import resume_lease
from tickwheel.operations.scan import Scan
from tickwheel.operations.server_checks import Durability, check_server
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.plan import Plan

M = TypeVar("M", bound=LeasedMessage)


class RedisBackend:
    """See `Backend`."""

    def __init__(self, context: NamespaceContext, durability: Durability, notice: UndrivenNotice | None = None) -> None:
        """``notice`` observes the enqueued messages."""
        self._context = context
        self._notice = notice
        self._durability = durability
        self._expected_queues = ExpectedQueues()

    def open(self, options: NamespaceOptions) -> Plan[None]:
        yield from check_server(self._durability, self._context.namespace)
        yield from open_namespace(self._context, options)

    def enqueue_many(self, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        uid = self._expected_queues.uid(queue)
        try:
            results = yield from enqueue_many(self._context, queue, messages, uid)
        except QueueNotFound:
            self._expected_queues.on_not_found(queue, uid)
            raise
        if self._notice is not None:
            self._notice.on_enqueued(results, self)
        return results

    def dequeue(self, queue: str, options: DequeueOptions, kind: type[M]) -> Plan[list[M]]:
        return Dequeue(self._context, queue, options).plan(kind)

    def message_wait(self, queues: Sequence[str]) -> MessageWait:
        return MessageWait(self._context, queues)

    def resume_lease(self, queue: str, id_: str, token: bytes, exclusive_value: str | None, kind: type[M]) -> Plan[M]:
        return resume_lease(self._context, queue, id_, token, exclusive_value, kind)

    def complete(self, messages: Sequence[LeasedMessage], results: Sequence[str | None] | None = None) -> Plan[None]:
        return settle.complete(self._context, messages, results)

    def fail(
        self, message: LeasedMessage, error: str | None, retry_in: Duration | None, final: bool
    ) -> Plan[settle.FailedAttempt]:
        return settle.fail(self._context, message, error, retry_in, final)

    def release(self, messages: Sequence[LeasedMessage]) -> Plan[None]:
        return settle.release(self._context, messages)

    def extend(self, messages: Sequence[LeasedMessage], duration: Duration) -> Plan[None]:
        return settle.extend(self._context, messages, duration)

    def cancel_many(
        self, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
    ) -> Plan[list[Change]]:
        return cancel.cancel_many(self._context, queue, ids, exclusive_value, release)

    def reschedule(
        self,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        delay: Duration | None,
        due: datetime | None,
        deadline: datetime | timedelta | None,
    ) -> Plan[Change]:
        return reschedule.reschedule(self._context, queue, id_, exclusive_value, delay, due, deadline)

    def redrive(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Change]:
        return redrive.redrive(self._context, queue, id_, exclusive_value)

    def get(self, queue: str, id_: str, exclusive_value: str | None, wait_ms: int = 0) -> Plan[MessageView]:
        return inspect.EndWait(self._context, queue, id_, exclusive_value, wait_ms).plan()

    def explain(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]:
        return explain.explain(self._context, queue, id_, exclusive_value)

    def pages(self, queue: str, state: str | None) -> Scan:
        return Scan(self._context, queue, state)

    def purge(self, queue: str, states: Iterable[str] | None) -> Purge:
        return Purge(self._context, queue, states)

    def delete_queue(self, queue: str, purge: bool) -> QueueDeletion:
        self._expected_queues.on_deleted(queue)
        return QueueDeletion(self._context, queue, purge)

    def delete_namespace(self) -> NamespaceDeletion:
        return NamespaceDeletion(self._context)

    def counts(self, queue: str) -> Plan[dict[str, int]]:
        return inspect.counts(self._context, queue)

    def lateness(self, queue: str) -> Plan[Lateness]:
        return inspect.lateness(self._context, queue)

    def depth(self, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
        return inspect.depth(self._context, queue, where)

    def forecast(self, queue: str, minutes: int) -> Plan[list[ForecastMinute]]:
        return inspect.forecast(self._context, queue, minutes)

    def create(self, queue: str, options: Mapping[str, Any], *, update: bool) -> Plan[QueueConfig]:
        try:
            config = yield from queues.create(self._context, queue, options, update=update)
        except (QueueConfigConflict, Forbidden):
            # The program knows now that there is another queue, or cannot know it.
            self._expected_queues.on_created(queue, b"")
            raise
        self._expected_queues.on_created(queue, config.uid)
        return config

    def block(self, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
        return queues.block(self._context, queue, blocked, enqueue=enqueue, dequeue=dequeue)

    def config(self, queue: str) -> Plan[QueueConfig]:
        config = yield from self._context.fetch_config(queue)
        self._expected_queues.on_read(queue, config.uid)
        return config

    def queues(self) -> Plan[dict[str, QueueConfig]]:
        return queues.list_queues(self._context)

    def settings(self) -> Plan[dict[str, str]]:
        return settings.list_settings(self._context)

    def setting(self, name: str) -> Plan[str | None]:
        return settings.read(self._context, name)

    def set_setting(self, name: str, value: str | None) -> Plan[None]:
        return settings.write(self._context, name, value)

    def expect_queue(self, queue: str) -> None:
        self._expected_queues.add(queue)

    def is_expected(self, queue: str) -> bool:
        return self._expected_queues.has(queue) and self._context.configs.get(queue) is not None

    def check_drivers(self, *, only_once: bool = False) -> Plan[str]:
        return (driver_watch.look_once if only_once else driver_watch.check_once)(self._context)

    def check_unclaimed(self) -> Plan[str]:
        return driver_watch.check_unclaimed(self._context)

    def driver_watch(self, unclaimed_ms: float = 0.0) -> driver_watch.DriverWatch:
        return driver_watch.DriverWatch(self._context, unclaimed_ms=unclaimed_ms)
