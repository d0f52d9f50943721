"""The part of an outbox that can be trimmed: the beginning, up to the first transition that is not acknowledged."""

import pytest

from tickwheel.relay.relay import WINDOW_BYTES, WINDOWS, InFlightWindows, TrimRange

pytestmark = pytest.mark.unit


def entries(*numbers: int, size: int = 10) -> list[tuple[bytes, bytes]]:
    return [(b"7-%d" % number, bytes(size)) for number in numbers]


@pytest.fixture
def flight() -> InFlightWindows:
    return InFlightWindows(lambda: None)


def test_a_window_can_be_trimmed_once_all_of_it_is_acknowledged(flight: InFlightWindows) -> None:
    window = flight.add(entries(1, 2), 2)
    window.on_delivery(None, None)
    assert flight.take_acknowledged() is None
    window.on_delivery(None, None)
    assert flight.take_acknowledged() == TrimRange(b"7-1", b"7-3", 20, 2)
    assert flight.take_acknowledged() is None


def test_nothing_is_trimmed_behind_an_unacknowledged_window(flight: InFlightWindows) -> None:
    older, younger = flight.add(entries(1), 1), flight.add(entries(2, 3), 1)
    younger.on_delivery(None, None)
    assert flight.take_acknowledged() is None
    older.on_delivery(None, None)
    assert flight.take_acknowledged() == TrimRange(b"7-1", b"7-4", 30, 2)


def test_an_error_is_kept_and_nothing_of_its_window_is_trimmed(flight: InFlightWindows) -> None:
    window = flight.add(entries(1), 2)
    window.on_delivery(None, None)
    window.on_delivery("why", None)
    assert flight.first_error() == "why"
    assert flight.take_acknowledged() is None


def test_the_number_of_windows_in_flight_is_limited(flight: InFlightWindows) -> None:
    for number in range(WINDOWS):
        assert not flight.is_full
        flight.add(entries(number), 1)
    assert flight.is_full


@pytest.mark.parametrize("size", [100, 4096, WINDOW_BYTES // 16])
def test_at_most_a_megabyte_is_in_flight(flight: InFlightWindows, size: int) -> None:
    in_flight = 0
    while not flight.is_full:
        in_flight += flight.add(entries(*range(flight.count), size=size), 1).trim_range.size
    assert in_flight <= WINDOWS * WINDOW_BYTES == 2**20


def test_windows_have_a_target_size_with_entries_of_any_size(flight: InFlightWindows) -> None:
    flight.add(entries(1, 2, size=WINDOW_BYTES), 2)
    assert flight.count == 1
