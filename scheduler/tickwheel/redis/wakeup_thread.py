"""Receives wake-ups for the threads of a process: one thread, with one connection to each server.

The first dequeue that waits starts the thread.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis.exceptions import AskError

from tickwheel.errors import TickwheelError
from tickwheel.plan import BROKEN_ANSWER, Search
from tickwheel.redis.end_waits import EndWaitHandle, EndWaits
from tickwheel.redis.joint_wait import JointWaitHandle
from tickwheel.redis.pools import ConnectionPools, read_answer
from tickwheel.redis.replies import CONNECTION_ERRORS
from tickwheel.redis.subscriptions import Subscriptions
from tickwheel.redis.wait_list import SWEEP_S, WaitList
from tickwheel.redis.waiter_handle import WaiterHandle
from tickwheel.runtime.signals import wait_interruptibly


class ThreadWaiter(WaiterHandle):
    """A thread that sleeps until its queue has a message for it."""

    def __init__(
        self, waiters: WaitList, queue: str, check: Callable[[], None], where: bytes = b"", caller: str = ""
    ) -> None:
        self._event = threading.Event()
        super().__init__(waiters, queue, self._event.set, check, where, caller)

    def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if the subscription was refused."""
        wait_interruptibly(self._event, seconds)
        self._event.clear()
        self._consume()


class JointThreadWaiter(JointWaitHandle):
    """A thread that sleeps until one of its queues has a message for it."""

    def __init__(
        self, waiters: WaitList, queues: Sequence[str], check: Callable[[], None], caller: str, closed: Sequence[str]
    ) -> None:
        self._event = threading.Event()
        super().__init__(waiters, queues, self._event.set, check, caller, closed)

    def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if a subscription was refused."""
        if self._may_sleep():
            wait_interruptibly(self._event, seconds)
        self._event.clear()
        self._check()


class ThreadEndWaiter(EndWaitHandle):
    """A thread that sleeps until its message ends."""

    def __init__(self, waits: EndWaits, topic: str, field: bytes, check: Callable[[], None]) -> None:
        self._event = threading.Event()
        super().__init__(waits, topic, field, self._event.set, check)

    def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if the subscription was refused."""
        wait_interruptibly(self._event, seconds)
        self._event.clear()
        self._check()


class WakeupThread:
    """Subscribes to the wake channels of the queues that have waiters, on every shard."""

    def __init__(self, servers: ConnectionPools, channels: Callable[[str], list[str]]) -> None:
        self._servers = servers
        self._waiters = WaitList()
        self._lock = threading.Lock()
        self._subscriptions: Subscriptions[threading.Event] = Subscriptions(servers.topology, self._waiters, channels)
        self._connections: dict[str, Any] = {}
        # The thread polls the second socket. A byte sent to the first socket ends the thread's wait.
        self._interrupt_sockets: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def subscribe(self, queue: str, where: bytes = b"", caller: str = "", *, exists: bool = True) -> ThreadWaiter:
        """Return a waiter for the queue, once its subscription is confirmed. ``where`` is the packed filter.

        If the queue does not exist, there is no subscription, and only the sweep wakes the waiter.
        If a server does not confirm the subscription in time, only the periodic sweep (`redis/wait_list.py`) is certain
        to wake the waiter. Raises Forbidden or another TickwheelError if a server refuses the subscription.
        """
        queues = [queue] if exists else []
        self._confirm(queues)
        waiter = ThreadWaiter(self._waiters, queue, self._subscriptions.check, where, caller)
        self._keep(queues)
        return waiter

    def subscribe_jointly(
        self, queues: Sequence[str], caller: str = "", closed: Sequence[str] = ()
    ) -> JointThreadWaiter:
        """Return a waiter for all of the queues, once their subscriptions are confirmed. See `subscribe`.

        ``closed``: further queues, which are closed, so there are no subscriptions to them.
        """
        self._confirm(queues)
        waiter = JointThreadWaiter(self._waiters, queues, self._subscriptions.check, caller, closed)
        self._keep(queues)
        return waiter

    def subscribe_to_end(self, topic: str, field: bytes, caller: str = "") -> ThreadEndWaiter:
        """Return a waiter for the end of a message, once the subscription to its topic is confirmed.

        ``caller`` has no effect: a thread is woken at once. If a server does not confirm the subscription in time, the
        waiter may miss the end. Raises errors as `subscribe` does.
        """
        self._confirm([topic])
        waiter = ThreadEndWaiter(self._subscriptions.end_waits, topic, field, self._subscriptions.check)
        self._keep([topic])
        return waiter

    def _confirm(self, queues: Sequence[str]) -> None:
        """Subscribe to the queues, and wait for the confirmations. If the client is closed, its next call fails."""
        with self._lock:
            if self._stopped.is_set():
                return
            confirmed = [self._begin_subscription(queue) for queue in queues]
            if self._thread is None:
                self._interrupt_sockets = socket.socketpair()
                thread = threading.Thread(target=self._run, name="tickwheel-wake", daemon=True)
                thread.start()
                self._thread = thread
        ends = time.monotonic() + self._servers.answer_s
        for event in filter(None, confirmed):
            event.wait(max(ends - time.monotonic(), 0))
        if queues:
            self._subscriptions.check()

    def _keep(self, queues: Sequence[str]) -> None:
        """Subscribe again to queues whose subscription has ended before the waiter was there."""
        with self._lock:
            if not self._stopped.is_set():
                for queue in queues:
                    self._begin_subscription(queue)

    def _begin_subscription(self, queue: str) -> threading.Event | None:
        """Return the event of the queue's subscription. The caller holds the lock."""
        confirmed, is_new = self._subscriptions.confirmation(queue, threading.Event)
        if is_new:
            self._interrupt_wait()
        return confirmed

    def begin_search(self, search: Search) -> None:
        """Return when the search may run or has an answer. The caller must call `end_search` afterwards."""
        turn = threading.Event()
        self._subscriptions.begin_search(search, turn.set)
        while self._subscriptions.is_queued(search):
            if not turn.wait(SWEEP_S):
                self._subscriptions.release_slow_searches(search)

    def end_search(self, search: Search) -> None:
        """End the search, even if it failed or did not begin. Other searches use its outcome."""
        self._subscriptions.end_search(search)

    def stop(self) -> None:
        """End the thread, and wake every waiter."""
        with self._lock:
            self._stopped.set()
            thread, self._thread = self._thread, None
            self._interrupt_wait()
            self._subscriptions.release_all()
        if thread is not None:
            thread.join()
        self._waiters.wake_all()
        self._subscriptions.end_waits.wake()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._subscribe_missing()
                for server in self._wait_readable():
                    self._on_server(server, self._read_messages)
                for server, channels in self._subscriptions.due_probes().items():
                    self._on_server(server, partial(self._subscribe, channels))
                self._subscriptions.sweep_if_due()
                self._end_idle()
                self._wake_parts()
        finally:
            for connection in self._connections.values():
                connection.disconnect()
            with self._lock:
                assert self._interrupt_sockets is not None
                for end in self._interrupt_sockets:
                    end.close()
                self._interrupt_sockets = None

    def _interrupt_wait(self) -> None:
        if self._interrupt_sockets is not None:
            self._interrupt_sockets[0].send(b".")

    def _subscribe_missing(self) -> None:
        """Subscribe to a part of the missing channels at their servers."""
        if self._subscriptions.slots_stale:
            try:
                self._servers.refresh_slots()
                self._subscriptions.on_slots_read()
            except (*CONNECTION_ERRORS, TickwheelError) as error:
                self._stopped.wait(self._subscriptions.on_slots_unknown(error))
        if self._subscriptions.may_send_part:
            with self._lock:
                missing = self._subscriptions.missing_by_server()
            for server, channels in missing.items():
                self._on_server(server, partial(self._subscribe, channels))

    def _end_idle(self) -> None:
        if self._subscriptions.may_send_part:
            with self._lock:
                ended = self._subscriptions.end_idle()
            for server, channels in ended.items():
                self._on_server(server, partial(self._send, "SUNSUBSCRIBE", channels))

    def _on_server(self, server: str, work: Callable[[str], None]) -> None:
        """Run ``work`` for a server. If the connection is lost or refused, its channels count as missing again."""
        try:
            work(server)
        except (*CONNECTION_ERRORS, *BROKEN_ANSWER, TickwheelError) as error:
            connection = self._connections.pop(server, None)
            if connection is not None:
                connection.disconnect()
            if not self._stopped.is_set():
                pause = self._subscriptions.on_error(server, error)
                while self._subscriptions.forget_part(server):
                    pass
                self._stopped.wait(pause)

    def _subscribe(self, channels: list[bytes], server: str) -> None:
        if server not in self._connections:
            self._connections[server] = self._servers.open_subscriber(server)
        self._send("SSUBSCRIBE", channels, server)

    def _send(self, command: str, channels: list[bytes], server: str) -> None:
        connection = self._connections[server]
        self._subscriptions.awaited_answers.on_sent(server, len(channels))
        # One command for each channel: a command cannot name channels of several hash slots.
        connection.send_packed_command(connection.pack_commands([(command, channel) for channel in channels]))

    def _wait_readable(self) -> list[str]:
        """Wait for data or an interrupt, for at most a quarter of the sweep interval. Return the servers with data."""
        assert self._interrupt_sockets is not None
        listened: list[Any] = [
            self._interrupt_sockets[1],
            *(connection._sock for connection in self._connections.values()),
        ]
        poll = select.poll()
        for connection in listened:
            poll.register(connection, select.POLLIN)
        longest_s = SWEEP_S / 4
        if self._subscriptions.has_part:
            longest_s = min(longest_s, self._subscriptions.awaited_answers.seconds_left())
        ready = {number for number, _ in poll.poll(1_000 * longest_s)}
        if self._interrupt_sockets[1].fileno() in ready:
            self._interrupt_sockets[1].recv(1_024)
        return [server for server, connection in self._connections.items() if connection._sock.fileno() in ready]

    def _read_messages(self, server: str) -> None:
        connection = self._connections[server]
        # Read all messages: `poll` does not report data that is already in the connection's buffer.
        while connection.can_read(timeout=0):
            message = read_answer(connection)
            if isinstance(message, AskError):
                self._subscriptions.on_redirect(server, message)
            elif not isinstance(message, Exception):
                self._subscriptions.on_message(server, message)
                self._wake_parts()
            elif not self._subscriptions.is_end_refused(server, message):
                raise message

    def _wake_parts(self) -> None:
        while self._waiters.wake_lost_part() or self._waiters.sweep_part():
            pass
