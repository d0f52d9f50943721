"""The operations of a client that talks to the shards itself."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tickwheel.client import tracing_backend as traced
from tickwheel.model import validation as arguments
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import cancel as change
from tickwheel.operations import explain, queues, settings
from tickwheel.operations import inspect as look
from tickwheel.operations import settle as finish
from tickwheel.operations.context import Core
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.enqueue import enqueue_many
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.results import Change
from tickwheel.operations.resume_lease import leased
from tickwheel.operations.scan import Scan
from tickwheel.operations.server_checks import Durability, check_server
from tickwheel.plan import Plan

M = TypeVar("M", bound=LeasedMessage)


class Direct:
    """See `surface.Operations`."""

    def __init__(self, core: Core, durability: Durability) -> None:
        self._core = core
        self._durability = durability

    def open(
        self,
        shards: int | None,
        history: str | None,
        auto_create: bool | None,
        clock_guard: timedelta | None,
        outbox_limit: int | None,
        outbox_full: str | None,
        existing: bool,
    ) -> Plan[None]:
        arguments.boolean("existing", existing)
        yield from check_server(self._durability, self._core.namespace)
        yield from open_namespace(
            self._core, shards, history, auto_create, clock_guard, outbox_limit, outbox_full, existing
        )

    @traced.sending
    def enqueue_many(self, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        return enqueue_many(self._core, queue, messages)

    @traced.receiving
    def dequeue(
        self,
        queue: str,
        limit: int,
        where: Mapping[str, str] | None,
        lease: timedelta | None,
        wait: timedelta | None,
        worker: str | None,
        request_id: str | None,
        consistency: str,
        kind: type[M],
    ) -> Plan[list[M]]:
        asked = Dequeue(self._core, queue, limit, where, lease, wait, worker, request_id, consistency)
        return asked.plan(kind)

    def leased(self, queue: str, id_: str, token: bytes, exclusive_value: str | None, kind: type[M]) -> Plan[M]:
        return leased(self._core, queue, id_, token, exclusive_value, kind)

    @traced.settling("complete")
    def complete(self, messages: Sequence[LeasedMessage], results: Sequence[str | None] | None = None) -> Plan[None]:
        return finish.complete(self._core, messages, results)

    @traced.settling("fail")
    def fail(self, message: LeasedMessage, error: str | None, retry_in: timedelta | None, final: bool) -> Plan[str]:
        return finish.fail(self._core, message, error, retry_in, final)

    @traced.settling("release")
    def release(self, messages: Sequence[LeasedMessage]) -> Plan[None]:
        return finish.release(self._core, messages)

    def extend(self, messages: Sequence[LeasedMessage], duration: timedelta) -> Plan[None]:
        return finish.extend(self._core, messages, duration)

    def cancel_many(
        self, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
    ) -> Plan[list[Change]]:
        return change.cancel_many(self._core, queue, ids, exclusive_value, release)

    def reschedule(
        self,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        delay: timedelta | None,
        due: datetime | None,
        deadline: datetime | timedelta | None,
    ) -> Plan[Change]:
        return change.reschedule(self._core, queue, id_, exclusive_value, delay, due, deadline)

    def redrive(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Change]:
        return change.redrive(self._core, queue, id_, exclusive_value)

    def get(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[MessageView]:
        return look.get(self._core, queue, id_, exclusive_value)

    def explain(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[explain.Explanation]:
        return explain.explain(self._core, queue, id_, exclusive_value)

    def pages(self, queue: str, state: str | None) -> Scan:
        return Scan(self._core, queue, state)

    def counts(self, queue: str) -> Plan[dict[str, int]]:
        return look.counts(self._core, queue)

    def lateness(self, queue: str) -> Plan[look.Lateness]:
        return look.lateness(self._core, queue)

    def depth(self, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
        return look.depth(self._core, queue, where)

    def forecast(self, queue: str, minutes: int) -> Plan[list[look.ForecastMinute]]:
        return look.forecast(self._core, queue, minutes)

    def create(self, queue: str, given: Mapping[str, Any], *, update: bool) -> Plan[QueueConfig]:
        return queues.create(self._core, queue, given, update=update)

    def block(self, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
        return queues.block(self._core, queue, blocked, enqueue=enqueue, dequeue=dequeue)

    def config(self, queue: str) -> Plan[QueueConfig]:
        return queues.current(self._core, queue)

    def queues(self) -> Plan[dict[str, QueueConfig]]:
        return queues.listed(self._core)

    def settings(self) -> Plan[dict[str, str]]:
        return settings.listed(self._core)

    def setting(self, name: str) -> Plan[str | None]:
        return settings.read(self._core, name)

    def set_setting(self, name: str, value: str | None) -> Plan[None]:
        return settings.write(self._core, name, value)
