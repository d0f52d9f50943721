"""The searches of the waiting dequeues of this process, by queue, filter and caller: equal ones are made once. No I/O.

A search for a filter may read many index entries and find nothing. An *empty* search is one that found nothing. It
answers equal searches of other calls in two cases:

- The other call asked before the empty search began. So the answer is as current as an answer of its own search.
- Nothing has become ready in the queue since the empty search began. The wake channels announce what becomes ready, so
  the process must be subscribed to the queue all the time. A call at the end of its wait does not rely on them, because
  an announcement may still be on its way, and no wake-up follows. A call that the sweep has woken does, because before
  each sweep, the servers confirm that the announcements arrive (`redis/subscriptions.py`).

Other searches wait for their turn. The messages that a search finds belong to its own call alone. Each search that
finds messages doubles the number of searches that run at a time, and an empty search sets this number to one again.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from tickwheel.plan import Search
from tickwheel.redis.wait_list import MAX_WIDTH, SWEEP_S

# If this number of groups exists, the idle ones are dropped before another one is added.
_MAX_GROUPS = 1_000
# An empty search answers no searches that begin later than this. It limits the delay if a server announces nothing.
_TRUSTED_S = 30.0


class _Group:
    """The searches of one caller for one queue and filter."""

    __slots__ = ("began", "nothing_since", "queued", "running", "slow_at", "trusted_until", "unfinal_count", "width")

    def __init__(self) -> None:
        # The number of searches that began so far. The number of a search is its position among them.
        self.began = 0
        # Each running search, with its number, the state of the announcements at its begin (None if unknown), and the
        # time of its begin.
        self.running: dict[Search, tuple[int, int | None, float]] = {}
        # Each search that waits for its turn, with the value of `began` when it asked, and its callback. An ordered
        # dictionary finds its first key at once, however many were removed.
        self.queued: OrderedDict[Search, tuple[int, Callable[[], None]]] = OrderedDict()
        # How many of them an empty search of the past may answer.
        self.unfinal_count = 0
        # The maximum number of running searches. Grows at the time `slow_at` if no search ends until then.
        self.width, self.slow_at = 1, 0.0
        # The state of the announcements at the begin of the last empty search (None if unknown), and the time until
        # which this search answers others.
        self.nothing_since: int | None = None
        self.trusted_until = 0.0

    def run(self, search: Search, announced: int | None) -> None:
        now = time.monotonic()
        self.began += 1
        self.running[search] = self.began, announced, now
        self.slow_at = now + SWEEP_S

    def is_known_empty(self, announced: int | None) -> bool:
        """Return whether nothing became ready since the last empty search. ``announced``: the announcements so far."""
        return announced is not None and self.nothing_since == announced and time.monotonic() < self.trusted_until

    def settle_queued(self, number: int, *, is_complete: bool) -> list[Callable[[], None]]:
        """Answer the queued searches that the empty search ``number`` answers. Return their callbacks."""
        answered: list[Search] = []
        for search, (asked, _) in self.queued.items():
            if asked >= number:
                # The later ones have asked later.
                break
            if is_complete or not search.final:
                answered.append(search)
        return [self._answer(search) for search in answered]

    def settle_unfinal(self) -> list[Callable[[], None]]:
        """Answer the queued searches that are not final, because nothing became ready. Return their callbacks."""
        answered = [search for search in self.queued if not search.final] if self.unfinal_count else []
        return [self._answer(search) for search in answered]

    def enqueue(self, search: Search, notify: Callable[[], None]) -> None:
        self.queued[search] = self.began, notify
        self.unfinal_count += not search.final

    def run_next(self, announced: int | None) -> Callable[[], None]:
        """Run the first queued search. Return its callback."""
        search, (_, notify) = self.queued.popitem(last=False)
        self.unfinal_count -= not search.final
        self.run(search, announced)
        return notify

    def leave(self, search: Search) -> None:
        """Remove the search if it is queued."""
        if self.queued.pop(search, None) is not None:
            self.unfinal_count -= not search.final

    def _answer(self, search: Search) -> Callable[[], None]:
        search.is_answered = True
        self.unfinal_count -= not search.final
        return self.queued.pop(search)[1]


class SharedSearches:
    """Decides which searches run, and which searches another one answers. Thread-safe.

    A caller passes each search to `begin` and, whatever happens, to `end`. In between, it sleeps while `is_queued`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, bytes, str], _Group] = {}
        # All announcements are numbered. By queue: the number of the last announcement. The begin of a subscription
        # counts as one, because announcements before may have been lost.
        self._last = 0
        self._announcements: dict[str, int] = {}

    def announce(self, queue: str) -> None:
        """Note that messages became ready, or may have become ready: the next search of the queue runs."""
        with self._lock:
            self._last += 1
            self._announcements[queue] = self._last

    def begin_announcements(self, queue: str) -> None:
        """Begin to note the announcements of a queue. No earlier search answers later ones."""
        self.announce(queue)

    def end_announcements(self, queue: str) -> None:
        """Forget the announcements of a queue, because its subscription ends."""
        with self._lock:
            self._announcements.pop(queue, None)

    def begin(self, search: Search, notify: Callable[[], None], *, is_subscribed: bool) -> None:
        """Answer the search, or let the search run, or queue the search until ``notify`` is called.

        ``is_subscribed``: all announcements of the queue arrive.
        """
        with self._lock:
            group = self._group(search)
            announced = self._announced(search) if is_subscribed else None
            if group.is_known_empty(announced) and not search.final:
                search.is_answered = True
            elif search.woken or len(group.running) < group.width:
                # `WaitList` limits the number of woken searches.
                group.run(search, announced)
            else:
                group.enqueue(search, notify)

    def is_queued(self, search: Search) -> bool:
        """Return whether the search neither runs nor has an answer."""
        with self._lock:
            return search in self._group(search).queued

    def release_slow(self, search: Search, *, is_subscribed: bool) -> None:
        """Let more searches of the group run if none has ended for a second: a server may not answer the others."""
        with self._lock:
            group = self._group(search)
            if time.monotonic() < group.slow_at:
                return
            group.width = min(group.width * 2, MAX_WIDTH)
            callbacks = self._run_queued(search, group, is_subscribed=is_subscribed)
        _call(callbacks)

    def end(self, search: Search, *, is_subscribed: bool) -> None:
        """End a search, whether it ran or not. If the search has no outcome, the next one runs."""
        with self._lock:
            group = self._group(search)
            group.leave(search)
            number, announced, began_at = group.running.pop(search, (0, None, 0.0))
            callbacks = []
            if number and search.found:
                group.width = min(group.width * 2, MAX_WIDTH)
            elif number and search.found is not None:
                group.width = 1
                if search.is_complete and announced is not None and announced >= (group.nothing_since or 0):
                    group.nothing_since, group.trusted_until = announced, began_at + _TRUSTED_S
                callbacks += group.settle_queued(number, is_complete=search.is_complete)
            callbacks += self._run_queued(search, group, is_subscribed=is_subscribed)
        _call(callbacks)

    def _run_queued(self, of: Search, group: _Group, *, is_subscribed: bool) -> list[Callable[[], None]]:
        """Answer or run the queued searches that need not wait any longer. Return their callbacks."""
        announced = self._announced(of) if is_subscribed else None
        callbacks = group.settle_unfinal() if group.is_known_empty(announced) else []
        while group.queued and len(group.running) < group.width:
            callbacks.append(group.run_next(announced))
        return callbacks

    def _announced(self, search: Search) -> int:
        return self._announcements.get(search.queue, 0)

    def _group(self, search: Search) -> _Group:
        key = search.queue, search.where, search.caller
        if (group := self._groups.get(key)) is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._groups = {key: group for key, group in self._groups.items() if group.running or group.queued}
            group = self._groups[key] = _Group()
        return group


def _call(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
