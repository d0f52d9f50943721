"""What of an outbox may be cut: the beginning up to the first transition that is not acknowledged."""

import pytest

from tickwheel.relay.relay import WINDOW_BYTES, WINDOWS, InFlightWindows, TrimRange

pytestmark = pytest.mark.unit


def entries(*numbers: int, size: int = 10) -> list[tuple[bytes, bytes]]:
    return [(b"7-%d" % number, bytes(size)) for number in numbers]


@pytest.fixture
def flight() -> InFlightWindows:
    return InFlightWindows(lambda: None)


def test_a_window_may_be_cut_once_all_of_it_is_acknowledged(flight: InFlightWindows) -> None:
    window = flight.add(entries(1, 2), 2)
    window.on_delivery(None, None)
    assert flight.take_acknowledged() is None
    window.on_delivery(None, None)
    assert flight.take_acknowledged() == TrimRange(b"7-1", b"7-3", 20, 2)
    assert flight.take_acknowledged() is None


def test_nothing_is_cut_behind_a_window_that_is_not_acknowledged(flight: InFlightWindows) -> None:
    older, younger = flight.add(entries(1), 1), flight.add(entries(2, 3), 1)
    younger.on_delivery(None, None)
    assert flight.take_acknowledged() is None
    older.on_delivery(None, None)
    assert flight.take_acknowledged() == TrimRange(b"7-1", b"7-4", 30, 2)


def test_an_error_is_told_and_nothing_of_its_window_is_cut(flight: InFlightWindows) -> None:
    window = flight.add(entries(1), 2)
    window.on_delivery(None, None)
    window.on_delivery("why", None)
    assert flight.first_error() == "why"
    assert flight.take_acknowledged() is None


def test_so_many_windows_are_under_way_and_no_more(flight: InFlightWindows) -> None:
    for number in range(WINDOWS):
        assert not flight.is_full
        flight.add(entries(number), 1)
    assert flight.is_full


@pytest.mark.parametrize("size", [100, 4096, WINDOW_BYTES // 16])
def test_a_megabyte_is_under_way_at_most(flight: InFlightWindows, size: int) -> None:
    under_way = 0
    while not flight.is_full:
        under_way += flight.add(entries(*range(flight.count), size=size), 1).trim_range.size
    assert under_way <= WINDOWS * WINDOW_BYTES == 2**20


def test_windows_aim_at_a_size_whatever_the_entries_are(flight: InFlightWindows) -> None:
    flight.add(entries(1, 2, size=WINDOW_BYTES), 2)
    assert flight.count == 1
