"""The calls of this process that wait until a message ends. No I/O.

A script that ends messages announces them by their fields on the channel `ended` of their queue and shard. Such a
channel is a topic of its own in `redis/subscriptions.py`. The process subscribes to it while calls wait for it.
"""

import threading
from collections.abc import Callable

from tickwheel.storage.end_topic import ended_fields


class EndWaiter:
    """A call that waits for a message. ``notify`` wakes its thread or task."""

    __slots__ = ("field", "notify", "topic")

    def __init__(self, topic: str, field: bytes, notify: Callable[[], None]) -> None:
        self.topic = topic
        self.field = field
        self.notify = notify


class EndWaits:
    """The waiting calls, by topic and message. Thread-safe. Does not hold its lock while it notifies waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, dict[bytes, set[EndWaiter]]] = {}

    def add(self, topic: str, field: bytes, notify: Callable[[], None]) -> EndWaiter:
        """Add a waiter for a message, and return it. ``field`` is the field of the message in `messages`."""
        waiter = EndWaiter(topic, field, notify)
        with self._lock:
            self._topics.setdefault(topic, {}).setdefault(field, set()).add(waiter)
        return waiter

    def remove(self, waiter: EndWaiter) -> None:
        """Remove a waiter. A second call does nothing."""
        with self._lock:
            fields = self._topics.get(waiter.topic, {})
            waiters = fields.get(waiter.field, set())
            waiters.discard(waiter)
            if not waiters:
                fields.pop(waiter.field, None)
            if not fields:
                self._topics.pop(waiter.topic, None)

    def has_waiter(self, topic: str) -> bool:
        """Return whether a call waits for a message of the topic."""
        return topic in self._topics

    def announce(self, topic: str, data: bytes) -> None:
        """Wake the waiters of the messages that an announcement names."""
        with self._lock:
            fields = self._topics.get(topic, {})
            chosen = [waiter for field in ended_fields(data) for waiter in fields.get(field, ())]
        _notify(chosen)

    def wake(self, topic: str | None = None) -> None:
        """Wake all waiters of a topic, or of all topics: announcements may have been lost, or the waits end."""
        with self._lock:
            topics = self._topics.values() if topic is None else [self._topics.get(topic, {})]
            chosen = [waiter for fields in topics for waiters in fields.values() for waiter in waiters]
        _notify(chosen)


class EndWaitHandle:
    """With a handle, a thread or a task waits for a message in `EndWaits`, and leaves them at the end."""

    def __init__(
        self, waits: EndWaits, topic: str, field: bytes, notify: Callable[[], None], check: Callable[[], None]
    ) -> None:
        """``check`` raises the error with which the server refused the subscription, if it did."""
        self._waits = waits
        self._check = check
        self._waiter = waits.add(topic, field, notify)

    def wake(self) -> None:
        """End the sleep, even if the message has not ended."""
        self._waiter.notify()

    def restore(self) -> None:
        """Do nothing: the wait has taken nothing from other waiters."""

    def unsubscribe(self) -> None:
        self._waits.remove(self._waiter)


def _notify(chosen: list[EndWaiter]) -> None:
    for waiter in chosen:
        waiter.notify()
