"""A sidecar of a shard restarts after every failure, including bugs, until it is fenced or stopped."""

import logging
from collections.abc import Callable
from threading import Event

import pytest

from tests.support.wait_until import eventually
from tickwheel import Unavailable
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.errors import Fenced
from tickwheel.event_process.sidecar import Sidecar

pytestmark = pytest.mark.unit


class Failing:
    """A work that fails ``times`` times with ``failure``, and then makes progress."""

    label = "work"

    def __init__(self, failure: Exception, times: int) -> None:
        self._failure = failure
        self._left = times
        self._woken = Event()
        self.progressed = Event()
        self.is_closed = False

    def run(self, stopping: Event, on_progress: Callable[[], None]) -> None:
        if self._left:
            self._left -= 1
            raise self._failure
        on_progress()
        self.progressed.set()
        while not stopping.is_set():
            self._woken.wait()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("failure", [Unavailable("no server"), ZeroDivisionError("a bug")], ids=type)
def test_a_sidecar_restarts_and_is_closed_only_when_it_is_stopped(failure: Exception) -> None:
    work = Failing(failure, 3)
    sidecar = Sidecar(FencedShard("tw", 0), work)
    eventually(work.progressed.is_set, "the work makes progress")
    # Closing would reset the metrics of the work, so it is not closed between attempts.
    assert not work.is_closed
    sidecar.stop()
    sidecar.join()
    assert work.is_closed


def test_an_unexpected_error_is_logged_with_its_traceback_and_not_at_each_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Failing(ZeroDivisionError("a bug"), 3)
    sidecar = Sidecar(FencedShard("tw", 7), work)
    eventually(work.progressed.is_set, "the work makes progress")
    sidecar.stop()
    sidecar.join()
    [logged] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.getMessage().startswith("shard 7: the work crashed; restarting (repeats are throttled)")
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError


def test_an_unreachable_server_is_logged_once_though_its_calls_take_different_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for n in range(3):
        work = Failing(Unavailable(f"no answer from nowhere:1 in 5.{n} s and {n + 12} attempts: refused"), 1)
        sidecar = Sidecar(FencedShard("tw", n), work)
        eventually(work.progressed.is_set, "the work makes progress")
        sidecar.stop()
        sidecar.join()
    [logged] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged.getMessage().startswith("shard 0: the work failed; retrying in ")


def test_a_newer_fence_ends_a_sidecar() -> None:
    work = Failing(Fenced("by epoch 8"), 1)
    Sidecar(FencedShard("tw", 0), work).join()
    assert work.is_closed
    assert not work.progressed.is_set()


def test_a_sidecar_of_a_lost_namespace_ends_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    work = Failing(NamespaceLost("the namespace is gone"), 3)
    sidecar = Sidecar(FencedShard("tw", 0), work)
    sidecar.join()
    assert work.is_closed
    assert caplog.records == []
