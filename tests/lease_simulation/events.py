"""Simulated time, and the threads of simulated processes. A thread is a generator that yields calls and pauses."""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from math import inf
from random import Random
from typing import Any


class ConnectionLost(Exception):
    """The server did not answer."""


class Fenced(Exception):
    """The shard has another fence."""


@dataclass(frozen=True)
class Call:
    """Calls a script of the server to which ``connection`` leads."""

    connection: Any
    script: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Sleep:
    """Waits, for at most ``ms``, until another thread wakes this one. ``is_deaf``: nothing wakes the thread."""

    ms: float
    is_deaf: bool = False


Operation = Call | Sleep
Program = Generator[Operation, Any, Any]


class Events:
    """The time in ms, and what happens later."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def after(self, ms: float, do: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (self.now + ms, next(self._numbers), do, args))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, do, args = heapq.heappop(self._queue)
            do(*args)


class SimulatedThread:
    """Runs a program. ``send`` passes its calls to the network. While the process is paused, nothing runs."""

    def __init__(
        self, events: Events, program: Program, send: Callable[["SimulatedThread", int, Call], None], process: Any
    ) -> None:
        self.process = process
        self._events = events
        self._program = program
        self._send = send
        # An event of an earlier operation has an older number, and is ignored.
        self._operation = 0
        self._sleeps = self._is_deaf = False
        # A wake that comes during a call ends the next sleep.
        self._is_woken = False
        self.has_ended = False

    def resume(self, operation: int, value: Any = None, error: Exception | None = None) -> None:
        """Continue with the result of an operation."""
        process, events = self.process, self._events
        if operation != self._operation or not process.is_alive or self.has_ended:
            return
        if process.paused_until > events.now:
            delay = process.paused_until - events.now + events.random.random()
            events.after(delay, self.resume, operation, value, error)
            return
        self._operation += 1
        self._sleeps = False
        try:
            following = self._program.throw(error) if error else self._program.send(value)
        except StopIteration:
            self.has_ended = True
            return
        match following:
            case Sleep(ms, is_deaf):
                self._sleeps, self._is_deaf = True, is_deaf
                if self._is_woken and not is_deaf:
                    self._is_woken = False
                    ms = 0
                if ms < inf:
                    events.after(max(ms, 0.05), self.resume, self._operation)
            case Call():
                self._send(self, self._operation, following)

    def wake(self, after: float = 0.0) -> None:
        """End the current sleep, or the next one if the thread does not sleep."""
        if after:
            self._events.after(after, self.wake)
        elif self._sleeps and not self._is_deaf:
            self.resume(self._operation)
        else:
            self._is_woken = True
