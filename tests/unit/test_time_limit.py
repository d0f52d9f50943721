"""Soft limits and interruptions of a running task: by an alarm in the main thread, by the interpreter elsewhere."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.wait_until import eventually
from tickwheel.tasks.exceptions import TimeLimitExceeded
from tickwheel.worker import time_limit
from tickwheel.worker.time_limit import AlarmLimit, ThreadLimits

pytestmark = pytest.mark.unit


class SoftLimitExceeded(Exception):
    pass


class Interrupted(BaseException):
    pass


@pytest.fixture(params=["main thread", "other thread"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[AlarmLimit | ThreadLimits], object]], object]]:
    """Runs a function of the limit in the thread to which the limit belongs, and returns its value."""
    if request.param == "main thread":
        handler = signal.getsignal(signal.SIGALRM)
        yield lambda function: function(AlarmLimit())
        signal.signal(signal.SIGALRM, handler)
    else:
        with ThreadPoolExecutor(1) as executor:
            limits = ThreadLimits()
            yield lambda function: executor.submit(function, limits).result(20)


Run = Callable[[Callable[[AlarmLimit | ThreadLimits], object]], object]


def spin(seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_a_soft_limit_raises_its_error_and_the_time_limit_stays(run: Run) -> None:
    def task(limit: AlarmLimit | ThreadLimits) -> list[str]:
        raised = []
        try:
            with limit(0.6), limit.soft(0.1, SoftLimitExceeded):
                try:
                    spin()
                except SoftLimitExceeded:
                    raised.append("soft")
                spin()
        except TimeLimitExceeded:
            raised.append("hard")
        return raised

    assert run(task) == ["soft", "hard"]


def test_a_soft_limit_that_is_not_exceeded_has_no_effect(run: Run) -> None:
    def task(limit: AlarmLimit | ThreadLimits) -> str:
        with limit(10):
            for _ in range(100):
                with limit.soft(0.15, SoftLimitExceeded):
                    pass
            spin(0.4)
        return "ended"

    assert run(task) == "ended"


def test_the_time_limit_comes_first_if_it_is_shorter(run: Run) -> None:
    def task(limit: AlarmLimit | ThreadLimits) -> str:
        try:
            with limit(0.1), limit.soft(5, SoftLimitExceeded):
                spin()
        except TimeLimitExceeded:
            return "hard"
        return "none"

    assert run(task) == "hard"


def test_another_thread_interrupts_the_block_and_nothing_after_it(run: Run) -> None:
    def task(limit: AlarmLimit | ThreadLimits) -> str:
        begun = threading.Event()
        with limit(10):
            with limit.interruptible(Interrupted) as interrupt:
                pass
            interrupt()
            spin(0.2)
            try:
                with limit.interruptible(Interrupted) as interrupt:
                    threading.Thread(target=lambda: (begun.wait(), interrupt())).start()
                    begun.set()
                    spin()
            except Interrupted:
                spin(0.2)
                return "interrupted"
        return "none"

    assert run(task) == "interrupted"


def test_outside_of_a_worker_process_there_are_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_installed", [])
    ended = threading.Event()
    with time_limit.raise_after(0.001, SoftLimitExceeded), time_limit.interruptible(Interrupted) as interrupt:
        interrupt()
        threading.Timer(0.05, ended.set).start()
        eventually(ended.is_set, "the limit is over")
