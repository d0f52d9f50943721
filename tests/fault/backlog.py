"""A wheel that nobody has turned for days: messages on all its levels, most of them for times that have passed."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tickwheel import NewMessage, Tickwheel
from tickwheel.storage.keys import shard_key
from tickwheel.storage.wheel_levels import LOWEST, parse, start
from tickwheel.testing import VirtualClock

# Three quarters of the messages have times that have passed. Of one time there are so many that a slot takes several
# calls on each level.
MESSAGES, TIMES = 50_000, 20
AWAY = timedelta(days=3)
SOON = timedelta(seconds=2)
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Backlog:
    """A queue whose messages wait on the wheel. ``due`` is when each may be promoted at the earliest."""

    def __init__(self, tickwheel: Tickwheel, clock: VirtualClock, server: Any, chance: random.Random) -> None:
        """The client follows the clock, which is turned back to enqueue; event processes follow the server's."""
        self.queue = tickwheel.create_queue("jobs")
        self.due: dict[str, datetime] = {}
        self._passed = 0
        self._clock = clock
        self._server = server
        self._chance = chance
        self._key = {name: shard_key(tickwheel._context.namespace, 0, name) for name in ("clock", "slots")}

    def grow(self) -> None:
        """Add messages that were enqueued days ago."""
        now, chance = datetime.now(UTC), self._chance
        times = [now + timedelta(hours=chance.choice([-1, -1, -1, 1]) * chance.uniform(1, 60)) for _ in range(TIMES)]
        # The wheel is turned by hand to file them, which is another kind of election.
        self._server.hdel(self._key["clock"], "election")
        self._clock.set(now - AWAY)
        chosen = [chance.choice(times) for _ in range(MESSAGES)]
        self._passed += sum(moment < now for moment in chosen)
        self._enqueue(chosen)
        self._clock.advance(timedelta(seconds=3))
        self._server.hdel(self._key["clock"], "election")

    def add_what_is_due_soon(self) -> None:
        """A few whose time comes while event processes are at work, so that one that is early is noticed."""
        now = datetime.now(UTC)
        self._enqueue([now + self._chance.random() * SOON for _ in range(50)])

    def left_to_promote(self) -> int:
        """How many of the messages whose time had long passed are not promoted, at least."""
        return self._passed - self.promoted()

    def left_to_cascade(self) -> int:
        """How many slots have started and are still to be cascaded."""
        started = (datetime.now(UTC) - _EPOCH) // _MS
        slots = [parse(name) for name in self._server.zrange(self._key["slots"], 0, -1)]
        return sum(level > LOWEST and start(level, number) <= started for level, number in slots)

    def promoted(self) -> int:
        """How many messages are promoted."""
        return self.queue.counts()["pending"]

    def cascades(self) -> int:
        """How many calls of `cascade` there were."""
        # Each takes its timers off a slot by LTRIM, which no other script does.
        return int(self._server.info("commandstats").get("cmdstat_ltrim", {"calls": 0})["calls"])

    def _enqueue(self, times: list[datetime]) -> None:
        new = {f"m{len(self.due) + n}": moment for n, moment in enumerate(times)}
        self.queue.enqueue_many(NewMessage(id=id, due=moment) for id, moment in new.items())
        self.due |= new
