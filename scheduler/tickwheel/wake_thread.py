"""Hears wake-ups for the threads of a process: one connection, one thread, started by the first that waits."""

import threading
import time
from collections.abc import Callable
from typing import Any

from redis.connection import ConnectionPool

from tickwheel.transport import UNANSWERED, log, raise_refused, refused
from tickwheel.waiting import CONFIRM_S, RECONNECT_S, REFUSED_S, SWEEP_S, WaitList


class ThreadWaiter:
    """A thread that sleeps until its queue has something for it."""

    def __init__(self, waiters: WaitList, queue: str, check: Callable[[], None]) -> None:
        self._event = threading.Event()
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, self._event.set)

    def park(self, seconds: float) -> None:
        """Sleep until woken, or for so many seconds. Raises what the server refused the subscription with."""
        self._event.wait(seconds)
        self._event.clear()
        self._waiters.consume(self._waiter)
        self._check()

    def pass_on(self) -> None:
        self._waiters.pass_on(self._waiter)

    def leave(self) -> None:
        self._waiters.remove(self._waiter)


class WakeThread:
    """Subscribes to the wake channels of the queues that somebody waits for, on every shard."""

    def __init__(self, connections: ConnectionPool, channels: Callable[[str], list[str]]) -> None:
        self._pool = connections
        self._channels = channels
        self._waiters = WaitList()
        self._lock = threading.Lock()
        self._queues: dict[str, threading.Event] = {}
        self._by_channel: dict[bytes, str] = {}
        self._connection: Any = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def watch(self, queue: str) -> ThreadWaiter:
        """A waiter for the queue, once its subscription stands; without a server, one that only the sweep wakes.

        Raises Forbidden, or another TickwheelError, where the server refuses the subscription.
        """
        with self._lock:
            if self._stopped.is_set():
                # The client is closed, and says so to the next call.
                return ThreadWaiter(self._waiters, queue, self._check)
            confirmed = self._queues.get(queue)
            if confirmed is None:
                confirmed = self._queues[queue] = threading.Event()
                self._by_channel |= {channel.encode(): queue for channel in self._channels(queue)}
                if self._connection is not None:
                    self._subscribe(self._connection, [queue])
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tickwheel-wake", daemon=True)
                thread.start()
                self._thread = thread
        confirmed.wait(CONFIRM_S)
        self._check()
        return ThreadWaiter(self._waiters, queue, self._check)

    def stop(self) -> None:
        """End the thread, and wake everybody."""
        with self._lock:
            self._stopped.set()
            thread, self._thread = self._thread, None
            for confirmed in self._queues.values():
                confirmed.set()
        if thread is not None:
            thread.join()
        self._waiters.wake_all()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except UNANSWERED as error:
                if self._stopped.is_set():
                    return
                log.warning("wake-ups interrupted, subscribing again: %s", error)
                self._error = error
                if refused(error) is None:
                    self._stopped.wait(RECONNECT_S)
                    continue
                for confirmed in list(self._queues.values()):
                    confirmed.set()
                self._waiters.wake_all()
                self._stopped.wait(REFUSED_S)

    def _check(self) -> None:
        raise_refused(self._error)

    def _listen(self) -> None:
        connection: Any = self._pool.get_connection()
        try:
            with self._lock:
                self._subscribe(connection, list(self._queues))
                self._connection = connection
            # What was published while nobody listened is lost: let everybody look.
            self._waiters.wake_all()
            swept = time.monotonic()
            while not self._stopped.is_set():
                if connection.can_read(timeout=SWEEP_S / 4):
                    self._hear(connection.read_response())
                if time.monotonic() - swept >= SWEEP_S:
                    self._waiters.sweep()
                    swept = time.monotonic()
        finally:
            with self._lock:
                self._connection = None
            connection.disconnect()
            self._pool.release(connection)

    def _subscribe(self, connection: Any, queues: list[str]) -> None:
        # One channel a command: channels of several shards lie in several slots.
        for queue in queues:
            for channel in self._channels(queue):
                connection.send_command("SSUBSCRIBE", channel)

    def _hear(self, message: Any) -> None:
        kind, channel, data = message
        queue = self._by_channel[channel]
        if kind == b"ssubscribe":
            self._error = None
            self._queues[queue].set()
        elif kind == b"smessage":
            self._waiters.wake(queue, int(data))
