"""Hears wake-ups for the threads of a process: one thread, started by the first that waits; a connection a server."""

import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import AskError

from tickwheel.redis.pools import ServerPools, read_answer
from tickwheel.redis.replies import UNANSWERED, raise_refused, refused
from tickwheel.redis.subscriptions import Subscriptions
from tickwheel.redis.wait_list import CONFIRM_S, RECONNECT_S, REFUSED_S, SWEEP_S, WaitList


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

    def wake(self) -> None:
        """Let this one look, whatever there is."""
        self._event.set()

    def pass_on(self) -> None:
        self._waiters.pass_on(self._waiter)

    def leave(self) -> None:
        self._waiters.remove(self._waiter)


class WakeThread:
    """Subscribes to the wake channels of the queues that somebody waits for, on every shard."""

    def __init__(self, servers: ServerPools, channels: Callable[[str], list[str]]) -> None:
        self._servers = servers
        self._waiters = WaitList()
        self._lock = threading.Lock()
        self._queues: dict[str, threading.Event] = {}
        self._subscriptions = Subscriptions(servers.topology, self._waiters, channels, self._stands)
        self._connections: dict[str, Any] = {}
        # One end wakes the thread at the other.
        self._nudges: tuple[socket.socket, socket.socket] | None = None
        self._swept = 0.0
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
                self._subscriptions.add(queue)
                self._nudge()
            if self._thread is None:
                self._nudges = socket.socketpair()
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
            self._nudge()
            for confirmed in self._queues.values():
                confirmed.set()
        if thread is not None:
            thread.join()
        self._waiters.wake_all()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._place()
                for server in self._readable():
                    self._at(server, self._hear)
                if time.monotonic() - self._swept >= SWEEP_S:
                    self._waiters.sweep()
                    self._swept = time.monotonic()
        finally:
            for connection in self._connections.values():
                connection.disconnect()
            with self._lock:
                assert self._nudges is not None
                for end in self._nudges:
                    end.close()
                self._nudges = None

    def _check(self) -> None:
        raise_refused(self._error)

    def _stands(self, queue: str) -> None:
        self._queues[queue].set()

    def _nudge(self) -> None:
        if self._nudges is not None:
            self._nudges[0].send(b".")

    def _place(self) -> None:
        """Subscribe to what is not subscribed to, where it belongs."""
        if self._subscriptions.map_is_old:
            try:
                self._servers.read_map()
                self._subscriptions.map_is_old = False
            except UNANSWERED as error:
                self._subscriptions.tell(f"wake-ups interrupted, where to subscribe is not known: {error}")
                self._stopped.wait(RECONNECT_S)
        with self._lock:
            wanted = self._subscriptions.wanted()
        for server, channels in wanted.items():
            self._at(server, partial(self._subscribe, channels))

    def _at(self, server: str, work: Callable[[str], None]) -> None:
        """Do something at a server; where its connection is lost, or refused, its channels are to be placed again."""
        try:
            work(server)
        except UNANSWERED as error:
            self._subscriptions.lost(server)
            connection = self._connections.pop(server, None)
            if connection is not None:
                connection.disconnect()
            if self._stopped.is_set():
                return
            self._subscriptions.tell(f"wake-ups interrupted, subscribing again: {error}")
            self._error = error
            if refused(error) is None:
                self._stopped.wait(RECONNECT_S)
                return
            for confirmed in list(self._queues.values()):
                confirmed.set()
            self._waiters.wake_all()
            self._stopped.wait(REFUSED_S)

    def _subscribe(self, channels: list[bytes], server: str) -> None:
        connection = self._connections.get(server)
        if connection is None:
            connection = self._connections[server] = self._servers.listening(server)
        # One channel a command: channels of several shards lie in several slots.
        connection.send_packed_command(connection.pack_commands([("SSUBSCRIBE", channel) for channel in channels]))

    def _readable(self) -> list[str]:
        """The servers that have said something, after a while at most."""
        assert self._nudges is not None
        listened: list[Any] = [self._nudges[1], *(each._sock for each in self._connections.values())]
        poll = select.poll()
        for each in listened:
            poll.register(each, select.POLLIN)
        ready = {number for number, _ in poll.poll(1_000 * SWEEP_S / 4)}
        if self._nudges[1].fileno() in ready:
            self._nudges[1].recv(1_024)
        return [server for server, each in self._connections.items() if each._sock.fileno() in ready]

    def _hear(self, server: str) -> None:
        connection = self._connections[server]
        # Whatever has come: `poll` does not see what the connection has read already.
        while connection.can_read(timeout=0):
            message = read_answer(connection)
            if isinstance(message, AskError):
                self._subscriptions.passed_on(server, message)
            elif isinstance(message, Exception):
                raise message
            else:
                self._subscriptions.hear(server, message)
                self._error = None
