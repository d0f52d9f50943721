"""The shards of one process in an election by lease. The loops of the shards and the election's thread share them."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Condition

from tickwheel.election.claims import LeaseClaims
from tickwheel.election.election import OnFenced
from tickwheel.storage.fence import StoredClaim


class LeaseLeadership:
    """The right to drive one shard."""

    on_fenced = OnFenced.STAND

    def __init__(self, shard: int, claims: LeaseClaims, on_loss: Callable[[], None], shards: "LeaseShards") -> None:
        self.shard = shard
        self.claims = claims
        self.lost = False
        # How often the loop has come round, and whether it waits now: `LoopWatch` reads both.
        self.rounds = 0
        self.is_waiting = True
        self._on_loss = on_loss
        self._shards = shards

    def begin_wait(self) -> None:
        """Record that the loop waits for its server or for a timer."""
        self.is_waiting = True

    def end_wait(self) -> None:
        """Record that the loop works."""
        self.rounds += 1
        self.is_waiting = False

    def release(self) -> None:
        """Let another process have the shard. The loop calls this when it no longer drives the shard."""
        self._shards.release(self)

    def lose(self) -> None:
        """End the leadership, and notify the loop."""
        if not self.lost:
            self.lost = True
            self._on_loss()


class LeaseShards:
    """Which loops of the process wait for a leadership, which have one, and which fences are to be released."""

    def __init__(self, member: str, wake: Callable[[], None]) -> None:
        """``wake`` wakes the election's thread, from any thread."""
        self._member = member
        self._wake = wake
        self._changed = Condition()
        self._has_changed = False
        self._waiting: dict[int, tuple[Callable[[], None], SimpleQueue[LeaseLeadership | None]]] = {}
        self._held: dict[int, LeaseLeadership] = {}
        self._releases: dict[int, bytes] = {}
        # The shards that this process cannot reach.
        self._resigned: set[int] = set()
        self._is_closed = False

    def wait_for(self, shard: int, on_loss: Callable[[], None]) -> "SimpleQueue[LeaseLeadership | None]":
        """Wait for the leadership of the shard: it comes through the queue; None if the process leaves."""
        queue: SimpleQueue[LeaseLeadership | None] = SimpleQueue()
        with self._changed:
            self._resigned.discard(shard)
            if self._is_closed:
                queue.put(None)
            else:
                self._waiting[shard] = on_loss, queue
                self._mark_changed()
        return queue

    def close(self) -> None:
        """End all waits, and let nobody wait again."""
        with self._changed:
            self._is_closed = True
            for _, queue in self._waiting.values():
                queue.put(None)
            self._waiting.clear()
            self._mark_changed()

    def release(self, leadership: LeaseLeadership) -> None:
        """End a leadership. If the loop has tried to claim the shard, the election's thread releases the fence."""
        with self._changed:
            if self._held.get(leadership.shard) is leadership:
                del self._held[leadership.shard]
                if leadership.claims.fence:
                    self._releases[leadership.shard] = leadership.claims.fence
                self._mark_changed()

    def resign(self, shard: int) -> None:
        """Avoid the shard until its loop waits for the leadership again."""
        with self._changed:
            self._resigned.add(shard)
            self._mark_changed()

    def await_losses(self, timeout_s: float) -> None:
        """Wait until all leaderships are lost or released."""
        with self._changed:
            self._changed.wait_for(lambda: all(held.lost for held in self._held.values()), timeout_s)

    # The election's thread calls the following methods.

    def take_change(self) -> bool:
        """Return whether loops have begun or ended to wait or to drive since the last call."""
        with self._changed:
            has_changed, self._has_changed = self._has_changed, False
            return has_changed

    def releases(self) -> dict[int, bytes]:
        """Return the fences to release, by shard."""
        with self._changed:
            return dict(self._releases)

    def on_released(self, releases: dict[int, bytes]) -> None:
        """Record that these fences are released."""
        with self._changed:
            self._releases = {shard: fence for shard, fence in self._releases.items() if releases.get(shard) != fence}

    def standing(self) -> set[int]:
        """Return the shards whose loops wait for a leadership."""
        with self._changed:
            return set(self._waiting)

    def resigned(self) -> set[int]:
        """Return the shards that this process cannot reach."""
        with self._changed:
            return set(self._resigned)

    def held(self) -> dict[int, LeaseLeadership]:
        """Return the leaderships that are not released, by shard: also the lost ones."""
        with self._changed:
            return dict(self._held)

    def lose(self, leadership: LeaseLeadership) -> None:
        """End a leadership whose loop still drives."""
        with self._changed:
            leadership.lose()
            self._changed.notify_all()

    def grant(self, shard: int, seen: StoredClaim) -> None:
        """Give the waiting loop of the shard a leadership, to claim the shard over the claim ``seen``."""
        with self._changed:
            if shard in self._waiting:
                on_loss, queue = self._waiting.pop(shard)
                leadership = LeaseLeadership(shard, LeaseClaims(self._member, seen), on_loss, self)
                self._held[shard] = leadership
                queue.put(leadership)

    def _mark_changed(self) -> None:
        self._has_changed = True
        self._changed.notify_all()
        self._wake()
