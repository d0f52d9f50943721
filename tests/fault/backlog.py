"""A wheel that no event process has driven for days: messages on all levels, most of them overdue."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tickwheel import NewMessage, Tickwheel
from tickwheel.storage.keys import shard_key
from tickwheel.storage.wheel_levels import LOWEST, parse, start
from tickwheel.testing import VirtualClock

# Three quarters of the messages are overdue. Many messages share each due time, so that a slot takes several calls on
# each level.
MESSAGES, TIMES = 25_000, 20
IDLE = timedelta(days=3)
SOON = timedelta(seconds=2)
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Backlog:
    """A queue whose messages are on the wheel. ``due`` is the earliest time of promotion of each message."""

    def __init__(self, tickwheel: Tickwheel, clock: VirtualClock, server: Any, chance: random.Random) -> None:
        """The client uses ``clock``, which `grow` sets back; event processes use the server's clock."""
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
        # The test clock runs its own driver to file the messages. This driver is not elected, so the record of the
        # election is removed before and after.
        self._server.hdel(self._key["clock"], "election")
        self._clock.set(now - IDLE)
        chosen = [chance.choice(times) for _ in range(MESSAGES)]
        self._passed += sum(moment < now for moment in chosen)
        self._enqueue(chosen)
        self._clock.advance(timedelta(seconds=3))
        self._server.hdel(self._key["clock"], "election")

    def add_messages_due_soon(self) -> None:
        """Add a few messages that become due while event processes run, so that the test notices an early promotion."""
        now = datetime.now(UTC)
        self._enqueue([now + self._chance.random() * SOON for _ in range(50)])

    def left_to_promote(self) -> int:
        """Return a lower bound of the number of overdue messages that are not promoted."""
        return self._passed - self.promoted()

    def left_to_cascade(self) -> int:
        """Return the number of slots whose interval has begun and that are not cascaded."""
        started = (datetime.now(UTC) - _EPOCH) // _MS
        slots = [parse(name) for name in self._server.zrange(self._key["slots"], 0, -1)]
        return sum(level > LOWEST and start(level, number) <= started for level, number in slots)

    def promoted(self) -> int:
        """Return the number of promoted messages."""
        return self.queue.counts()["pending"]

    def cascades(self) -> int:
        """Return the number of calls of `cascade`."""
        # `cascade` removes timers from a slot by LTRIM. No other script uses LTRIM.
        return int(self._server.info("commandstats").get("cmdstat_ltrim", {"calls": 0})["calls"])

    def _enqueue(self, times: list[datetime]) -> None:
        new = {f"m{len(self.due) + n}": moment for n, moment in enumerate(times)}
        self.queue.enqueue_many(NewMessage(id=id, due=moment) for id, moment in new.items())
        self.due |= new
