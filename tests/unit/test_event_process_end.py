"""The end of an event process, also if the loop of a shard hangs."""

import re
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from tickwheel import TickwheelError
from tickwheel.event_process import EventProcess, supervisor

pytestmark = pytest.mark.unit


class StuckElection:
    """An election in which the loop of shard 1 hangs."""

    kind = "lockfile"
    unreadable_nodes = 0
    must_check_namespace = True

    def __init__(self) -> None:
        self.is_closed = False
        self.never = Event()

    def acquire(self, shard: int, stop: Event, on_loss: Callable[[], None]) -> None:
        (self.never if shard == 1 else stop).wait()

    def resign(self, shard: int) -> bool:
        return False

    def leave(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class NoQueues:
    """The queues of a namespace that is never read."""

    unreadable_rows = 0

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_an_event_process_ends_although_a_loop_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "END_S", 0.2)
    election = StuckElection()
    process = EventProcess(lambda shard: NoQueues(), "tw", range(3), queues=NoQueues(), election=election)  # type: ignore[arg-type, return-value]
    process.stop()
    with pytest.raises(TickwheelError, match=re.escape("1 of 3 loops did not end within 0.2 s (the first: shard 1)")):
        process.run()
    assert election.is_closed
    election.never.set()
