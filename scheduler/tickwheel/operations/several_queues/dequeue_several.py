"""Dequeue of several queues: takes one batch from one of them, and waits for all of them at once.

A selector chooses the queue (`worker/selectors.py`), among the queues that may have messages. A queue in which a
dequeue has found nothing is not asked again before its next announcement, or until a check finds messages there. So a
call costs nothing for queues that are empty or blocked.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tickwheel.errors import QueueBlocked, QueueNotFound, TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.plan import BROKEN_ANSWER, ArgumentError, Plan

M = TypeVar("M", bound=LeasedMessage)
# How long a queue that is blocked, or does not exist, is not asked again while other queues have messages.
_CLOSED_S = 1.0


class Named(Protocol):
    """A queue that a selector chooses."""

    @property
    def name(self) -> str: ...


Q = TypeVar("Q", bound=Named)
T = TypeVar("T")


class Wait(Protocol):
    """See `MessageWait`. `next` returns None if the service does not offer the wait."""

    def next(self, until: float) -> Plan[list[str] | None]: ...

    def begin_search(self, queue: str) -> None: ...

    def end(self) -> Plan[None]: ...


class WaitingBackend(Protocol):
    """The operations of a backend that the plan uses."""

    def dequeue(self, queue: str, options: DequeueOptions, kind: type[M]) -> Plan[list[M]]: ...

    def release(self, messages: Sequence[LeasedMessage]) -> Plan[None]: ...

    def message_wait(self, queues: Sequence[str]) -> Any: ...


@dataclass(slots=True)
class QueueBatch(Generic[Q, M]):
    """The chosen queue, and the messages that were leased from it. There may be none."""

    queue: Q
    messages: list[M]


class SeveralQueues(Generic[Q, M]):
    """The queues of one worker. For one caller: not thread-safe."""

    def __init__(
        self,
        options: Mapping[str, DequeueOptions],
        select: Callable[[], Generator[Q, bool, Q] | Q],
        kind: type[M],
        observe: Callable[[str, QueueBlocked | QueueNotFound | None], None] = lambda queue, error: None,
        on_unreleased: Callable[[str, int, TickwheelError], None] = lambda queue, count, error: None,
        options_after_wait: Mapping[str, DequeueOptions] | None = None,
    ) -> None:
        """``options``, by queue, are those of its dequeues, without a wait: their ``limit`` is the size of a batch.
        ``options_after_wait`` replace them for a dequeue that a wait for all queues has led to, and while the caller
        sets `is_after_wait`.

        ``select`` is `QueueSelector.select_queue`. Each question of the selector is answered by a dequeue, and then
        ``observe`` is called with the queue and with the error if the queue is blocked or does not exist.
        ``on_unreleased`` is called if a batch that the selector did not choose could not be released.
        """
        self._options = options
        self._options_after_wait = options if options_after_wait is None else options_after_wait
        self.is_after_wait = False
        self._select = select
        self._kind = kind
        self._observe = observe
        self._on_unreleased = on_unreleased
        # The queues that may have messages.
        self._ready = set(options)
        # The queues that are blocked or do not exist, each with the time of the next question.
        self._closed: dict[str, float] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the last call has found all queues empty. Otherwise, the selector has not asked about all of them."""
        return not self._ready

    def plan(self, backend: WaitingBackend, seconds: float) -> Plan[QueueBatch[Q, M]]:
        """Take a batch from the queue that the selector chooses. If all queues are empty, wait up to ``seconds``.

        If the selector chooses an empty queue without a question about each of the others, the call does not wait. A
        queue that does not exist, or is blocked, counts as empty. If messages of other queues were leased to answer the
        selector, they are released. Raises the errors of `Queue.dequeue`.
        """
        if not seconds:
            self._reset()
        batch = yield from self._choose(backend, None)
        if batch.messages or not seconds or self._ready:
            return batch
        until = time.monotonic() + seconds
        wait = backend.message_wait(tuple(self._options))
        try:
            while ready := (yield from wait.next(until)):
                self._ready = self._options.keys() & ready
                batch = yield from self._choose(backend, wait)
                if batch.messages or self._ready:
                    return batch
            if ready is None:
                # The caller has to wait for the chosen queue alone.
                self._ready = set(self._options)
            return batch
        finally:
            yield from wait.end()

    def _choose(self, backend: WaitingBackend, wait: Wait | None) -> Plan[QueueBatch[Q, M]]:
        """Let the selector choose among the queues that may have messages. Remove those that turn out to be empty."""
        selection = _ask(self._select)
        if not isinstance(selection, Generator):
            return QueueBatch(selection, [])
        leased: dict[str, list[M]] = {}
        chosen = ""
        try:
            candidate = _ask(partial(next, selection))
            while True:
                name = candidate.name
                if name in self._ready and name not in leased:
                    if messages := (yield from self._take(backend, name, wait)):
                        leased[name] = messages
                    else:
                        self._ready.discard(name)
                candidate = _ask(partial(selection.send, name in leased))
        except StopIteration as choice:
            queue: Q = choice.value
            chosen = queue.name
        finally:
            # The selector has chosen another queue, or has failed. Nothing renews the leases of these messages, so the
            # leases end soon even if a release fails. The caller still receives the messages of the chosen queue.
            for name in leased.keys() - {chosen}:
                try:
                    yield from backend.release(leased[name])
                except TickwheelError as error:
                    self._on_unreleased(name, len(leased[name]), error)
        messages = leased.get(chosen, [])
        if messages:
            self._reset()
        return QueueBatch(queue, messages)

    def _take(self, backend: WaitingBackend, queue: str, wait: Wait | None) -> Plan[list[M]]:
        if wait is not None:
            wait.begin_search(queue)
        is_after_wait = self.is_after_wait or wait is not None
        options = (self._options_after_wait if is_after_wait else self._options)[queue]
        try:
            messages = yield from backend.dequeue(queue, options, self._kind)
        except (QueueBlocked, QueueNotFound) as error:
            # The queue may be unblocked or created later.
            self._closed[queue] = time.monotonic() + _CLOSED_S
            self._observe(queue, error)
            return []
        self._observe(queue, None)
        return messages

    def _reset(self) -> None:
        """Take every queue for one that may have messages, unless it was closed a moment ago."""
        now = time.monotonic()
        self._closed = {queue: until for queue, until in self._closed.items() if until > now}
        self._ready = self._options.keys() - self._closed.keys()


def _ask(step: Callable[[], T]) -> T:
    """Take a step of a selector, which is code of the user. `PlanRun` would report its error as a broken answer."""
    try:
        return step()
    except StopIteration:
        raise
    except BROKEN_ANSWER as error:
        raise ArgumentError(error) from error
