"""freezegun can test a program that passes `time.time()` to the wheel; no clock needs to be injected."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from freezegun import freeze_time

from timing_wheel import TimingWheel

pytestmark = pytest.mark.unit


class Reminders:
    """A typical user of the wheel: ticks are seconds since 1970, read from the machine's clock."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._wheel: TimingWheel[str] = TimingWheel(int(time.time()))
        self._notify = notify

    def remind(self, text: str, delay: timedelta) -> None:
        self._wheel.add(int(time.time() + delay.total_seconds()), text)

    def poll(self) -> None:
        for text in self._wheel.advance(int(time.time())):
            self._notify(text)

    def seconds_to_sleep(self) -> float | None:
        wake = self._wheel.next_expiry()
        return None if wake is None else max(0.0, wake - time.time())


def test_a_reminder_in_thirty_days_fires_when_frozen_time_reaches_it() -> None:
    shown: list[str] = []
    with freeze_time("2024-02-10 12:00:00") as clock:
        reminders = Reminders(shown.append)
        reminders.remind("pay the rent", timedelta(days=30))

        clock.tick(timedelta(days=30) - timedelta(seconds=1))
        reminders.poll()
        assert shown == []

        clock.tick(timedelta(seconds=1))
        reminders.poll()
        assert shown == ["pay the rent"]


def test_sleeping_until_the_next_expiry_fires_every_reminder_on_time() -> None:
    shown: list[str] = []
    with freeze_time("2024-12-31 23:59:00") as clock:
        reminders = Reminders(lambda text: shown.append(f"{time.time():.0f} {text}"))
        begin = time.time()
        for seconds in (59, 60, 61, 3_600, 86_400, 366 * 86_400):
            reminders.remind(str(seconds), timedelta(seconds=seconds))

        wakes = 0
        while (sleep := reminders.seconds_to_sleep()) is not None:
            clock.tick(sleep)
            reminders.poll()
            wakes += 1

        expected = [f"{begin + int(text):.0f} {text}" for text in (s.split()[1] for s in shown)]
    assert shown == expected
    assert wakes == 6


def test_a_clock_set_back_by_an_hour_fires_nothing_twice_and_nothing_early() -> None:
    shown: list[str] = []
    with freeze_time("2024-10-27 03:00:00") as clock:
        reminders = Reminders(shown.append)
        reminders.remind("one", timedelta(seconds=10))
        reminders.remind("two", timedelta(seconds=20))
        clock.tick(10)
        reminders.poll()

        clock.move_to("2024-10-27 02:00:10")
        reminders.poll()
        clock.tick(3_609)
        reminders.poll()
        assert shown == ["one"]

        clock.tick(1)
        reminders.poll()
    assert shown == ["one", "two"]
