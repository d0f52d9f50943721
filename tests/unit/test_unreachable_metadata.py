"""A driver whose queue has a changed configuration, while the metadata shard cannot be reached."""

from typing import Any

import pytest

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.firing import RENEW_PAUSE_MS, TimerFirer
from tickwheel.driver.inbox_buffer import InboxBuffer
from tickwheel.driver.loaded_timers import LoadedTimers
from tickwheel.driver.queue_lookup import QueueRef
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import Unavailable
from tickwheel.storage.script_errors import STALECONFIG, ScriptError
from tickwheel.storage.scripts import Call
from tickwheel.storage.timer import Kind, Timer, pack

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000
CHANGED, OTHER = 1, 2


class Clock:
    """The time of the shard, and the monotonic clock."""

    is_holding = False
    ahead_ms = 0
    unsaved_offset = None

    def __init__(self) -> None:
        self.passed_ms = 0

    def now(self) -> int:
        return NOW + self.passed_ms

    def monotonic(self) -> float:
        return float(self.passed_ms)

    def observe(self, server_ms: int) -> None: ...


class Queues:
    """Two cached queues. The metadata shard does not answer until ``is_reachable``."""

    unreadable_rows = 0
    read_pause_ms = 0.0

    def __init__(self) -> None:
        self.is_reachable = False
        self.calls = 0

    def cached(self, number: int) -> QueueRef:
        return QueueRef(f"q{number}", b"")

    find = lookup = cached

    def renew(self, number: int, shard: int) -> QueueRef:
        assert number == CHANGED
        self.calls += 1
        if not self.is_reachable:
            raise Unavailable("no answer")
        return self.cached(number)

    def check_shards(self) -> bool:
        return True


def fire(firer: TimerFirer, *, has_renewed: bool = False) -> list[str]:
    """Fire the due timers. The shard has a newer configuration of the changed queue. Return the queues of the calls."""
    called: list[str] = []
    steps = firer.fire(Kind.PROMOTE, 4)
    try:
        command: Any = next(steps)
        while True:
            assert isinstance(command, Call)
            name = "q1" if any("q1" in key for key in command.keys) else "q2"
            called.append(name)
            if name == "q1" and not has_renewed:
                command = steps.throw(ScriptError(f"{STALECONFIG} 2"))
            else:
                command = steps.send(NOW.to_bytes(6, "big") + bytes(1))
    except StopIteration:
        return called


def test_timers_of_other_queues_fire_while_a_changed_queue_cannot_be_read() -> None:
    clock, queues, stats = Clock(), Queues(), WheelStats()
    loaded: Any = LoadedTimers(NOW)
    shard_clock: Any = clock
    firer = TimerFirer(FencedShard("tw", 0), queues, shard_clock, loaded, InboxBuffer(), stats)
    for number in (CHANGED, OTHER):
        loaded.add_packed(pack(Timer(NOW, number, 7, Kind.PROMOTE, b"m")))
    assert sorted(fire(firer)) == ["q1", "q2"]
    assert (stats.fired_timers, queues.calls) == (1, 1)
    # The call is not repeated at once, because it takes seconds.
    clock.passed_ms += 2_000
    assert fire(firer) == ["q1"]
    assert queues.calls == 1
    clock.passed_ms += RENEW_PAUSE_MS
    queues.is_reachable = True
    assert fire(firer) == ["q1"] * 4
    assert queues.calls == 5
    assert fire(firer, has_renewed=True) == ["q1"]
    assert (stats.fired_timers, loaded.count) == (2, 0)
