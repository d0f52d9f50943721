"""The operations of a client, each as a plan. `RedisBackend` calls the shards, `GrpcBackend` the gRPC service."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.model.validation import Duration
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.settle import FailedAttempt
from tickwheel.operations.several_queues.dequeue_several import Wait
from tickwheel.plan import Plan

M = TypeVar("M", bound=LeasedMessage)


class MessagePager(Protocol):
    """Reads the messages of a queue, page by page."""

    ended: bool

    def next(self) -> Plan[list[MessageView]]:
        """Return a plan for the next page. A page may be empty although more pages follow; see `ended`."""


class Remover(Protocol):
    """Removes messages or keys, step by step."""

    ended: bool

    def next(self) -> Plan[int]:
        """Return a plan for the next step, which returns the number of removed messages or keys; see `ended`."""


class DriverWatch(Protocol):
    """Checks again and again whether event processes drive the namespace."""

    def check(self, *, is_thorough: bool = False) -> Plan[str]:
        """Return a warning if no event process drives the namespace, or an empty text.

        Only a thorough check notices all that a check can notice. It may take some seconds.
        """


class Backend(Protocol):
    """The operations behind `Queue`, `Message` and `Tickwheel`. The docstrings of those classes describe them."""

    def open(self, options: NamespaceOptions) -> Plan[None]:
        """Create the namespace, or compare an existing one with the options. Fill the client's `NamespaceContext`."""

    def enqueue_many(self, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]: ...

    def dequeue(self, queue: str, options: DequeueOptions, kind: type[M]) -> Plan[list[M]]: ...

    def message_wait(self, queues: Sequence[str]) -> Wait: ...

    def resume_lease(
        self, queue: str, id_: str, token: bytes, exclusive_value: str | None, kind: type[M]
    ) -> Plan[M]: ...

    def complete(
        self, messages: Sequence[LeasedMessage], results: Sequence[str | None] | None = None
    ) -> Plan[None]: ...

    def fail(
        self, message: LeasedMessage, error: str | None, retry_in: Duration | None, final: bool
    ) -> Plan[FailedAttempt]: ...

    def release(self, messages: Sequence[LeasedMessage]) -> Plan[None]: ...

    def extend(self, messages: Sequence[LeasedMessage], duration: Duration) -> Plan[None]: ...

    def cancel_many(
        self, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
    ) -> Plan[list[Change]]: ...

    def reschedule(
        self,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        delay: Duration | None,
        due: datetime | None,
        deadline: datetime | timedelta | None,
    ) -> Plan[Change]: ...

    def redrive(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Change]: ...

    def get(self, queue: str, id_: str, exclusive_value: str | None, wait_ms: int = 0) -> Plan[MessageView]: ...

    def explain(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]: ...

    def pages(self, queue: str, state: str | None) -> MessagePager: ...

    def purge(self, queue: str, states: Iterable[str] | None) -> Remover: ...

    def delete_queue(self, queue: str, purge: bool) -> Remover: ...

    def delete_namespace(self) -> Remover: ...

    def counts(self, queue: str) -> Plan[dict[str, int]]: ...

    def lateness(self, queue: str) -> Plan[Lateness]: ...

    def depth(self, queue: str, where: Mapping[str, str] | None) -> Plan[int]: ...

    def forecast(self, queue: str, minutes: int) -> Plan[list[ForecastMinute]]: ...

    def create(self, queue: str, options: Mapping[str, Any], *, update: bool) -> Plan[QueueConfig]: ...

    def block(self, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]: ...

    def config(self, queue: str) -> Plan[QueueConfig]: ...

    def queues(self) -> Plan[dict[str, QueueConfig]]: ...

    def settings(self) -> Plan[dict[str, str]]: ...

    def setting(self, name: str) -> Plan[str | None]: ...

    def set_setting(self, name: str, value: str | None) -> Plan[None]: ...

    def expect_queue(self, queue: str) -> None:
        """Let an enqueue fail with QueueNotFound if the queue is not the one that the next `create` of it returns."""

    def is_expected(self, queue: str) -> bool:
        """Return whether an enqueue would fail if the queue is another one than this client has seen.

        False also if an enqueue has failed for this reason since the last `create`.
        """

    def check_drivers(self, *, only_once: bool = False) -> Plan[str]:
        """Return a warning if no event process drives the namespace, or an empty text. A client of the service asks the
        service, and gets an empty text from an older one.

        If the client calls the shards, the check costs one round trip with ``only_once``. Otherwise it also finds the
        end of the last process of an election by lease, which takes some seconds.
        """

    def check_unclaimed(self) -> Plan[str]:
        """Return a warning if nobody has ever driven the namespace. A client of the service asks the service, which
        also returns its other warnings.
        """

    def driver_watch(self, unclaimed_ms: float = 0.0) -> DriverWatch:
        """Return a watch. ``unclaimed_ms``: see `driver_watch.DriverWatch`; for a client that calls the shards."""
