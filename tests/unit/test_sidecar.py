"""What runs beside a shard's wheel goes on after every failure, mistakes too, until it is fenced or told to stop."""

import logging
from collections.abc import Callable
from threading import Event

import pytest

from tests.support.wait_until import eventually
from tickwheel import Unavailable
from tickwheel.driver.fenced_shard import Shard
from tickwheel.errors import Fenced
from tickwheel.event_process.sidecar import Companion

pytestmark = pytest.mark.unit


class Failing:
    """A work that fails so often, each time in this way, and then works."""

    what = "work"

    def __init__(self, failure: Exception, times: int) -> None:
        self._failure = failure
        self._left = times
        self._woken = Event()
        self.works = Event()
        self.is_closed = False

    def run(self, stopping: Event, works: Callable[[], None]) -> None:
        if self._left:
            self._left -= 1
            raise self._failure
        works()
        self.works.set()
        while not stopping.is_set():
            self._woken.wait()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("failure", [Unavailable("no server"), ZeroDivisionError("a mistake")], ids=type)
def test_it_begins_again_and_is_closed_only_when_it_is_told_to_stop(failure: Exception) -> None:
    work = Failing(failure, 3)
    companion = Companion(Shard("tw", 0), work)
    eventually(work.works.is_set, "it works")
    # Its figures stay as they were last seen: closing takes them back.
    assert not work.is_closed
    companion.stop()
    companion.join()
    assert work.is_closed


def test_a_mistake_is_told_with_its_traceback_and_not_at_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    work = Failing(ZeroDivisionError("a mistake"), 3)
    companion = Companion(Shard("tw", 7), work)
    eventually(work.works.is_set, "it works")
    companion.stop()
    companion.join()
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.getMessage().startswith("shard 7: the work failed by a mistake in it")
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


def test_a_server_that_is_away_is_told_of_once_though_its_calls_took_more_and_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for n in range(3):
        work = Failing(Unavailable(f"no answer from nowhere:1 in 5.{n} s and {n + 12} attempts: refused"), 1)
        companion = Companion(Shard("tw", n), work)
        eventually(work.works.is_set, "it works")
        companion.stop()
        companion.join()
    [told] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.getMessage().startswith("shard 0: the work failed, again in ")


def test_a_newer_fence_ends_it() -> None:
    work = Failing(Fenced("by epoch 8"), 1)
    Companion(Shard("tw", 0), work).join()
    assert work.is_closed
    assert not work.works.is_set()
