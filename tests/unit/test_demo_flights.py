"""The demo's input: the format of a departures file, its errors, and the compression of the day to seconds."""

import pytest

from tickwheel import InvalidArgument
from tickwheel.demo import flights
from tickwheel.demo.flights import Flight, block_minutes, parse
from tickwheel.demo.timetable import FLIGHTS, UNASSIGNED, Timetable, max_airborne

pytestmark = pytest.mark.unit

HEAD = "carrier,flight,tailnum,origin,dest,sched_dep_time,dep_time,sched_arr_time,arr_time,air_time,distance\n"
LINE = "UA,1018,N24224,EWR,IAH,525,524,820,809,200,1400\n"


def parse_line(line: str) -> Flight:
    [flight] = parse(HEAD + line)
    return flight


def test_the_sample_is_the_day_of_the_blizzard() -> None:
    day = flights.read(flights.sample())
    assert len(day) == 930
    assert sum(flight.cancelled for flight in day) == 472
    assert sum(flight.aircraft is None for flight in day) == 161
    assert all(flight.cancelled for flight in day if flight.aircraft is None)
    assert sum(flight.past_midnight for flight in day) == 11


def test_a_line_is_parsed_into_a_flight() -> None:
    flight = parse_line(LINE)
    assert (flight.id, flight.aircraft, flight.origin, flight.destination) == (
        "UA1018-EWR-0525",
        "N24224",
        "EWR",
        "IAH",
    )
    assert (flight.departs, flight.minutes, flight.cancelled) == (5 * 60 + 25, 200, False)


def test_a_flight_without_air_time_takes_its_scheduled_block_time() -> None:
    assert parse_line("US,2122,N959UW,LGA,BOS,1000,956,1108,,,184\n").minutes == 68


def test_a_flight_that_never_departed_is_cancelled() -> None:
    assert parse_line("US,2122,N959UW,LGA,BOS,1000,,1108,,,184\n").cancelled


@pytest.mark.parametrize("empty", ["", "NA"])
def test_an_unknown_tail_number_counts_as_none(empty: str) -> None:
    assert parse_line(f"F9,837,{empty},LGA,DEN,1730,,2000,,,1620\n").aircraft is None


@pytest.mark.parametrize(
    ("departs", "arrives", "distance", "minutes", "why"),
    [
        (600, 668, 184, 68, "one zone"),
        (540, 757, 2586, 217 + 180, "San Francisco is three hours behind"),
        (540, 940, 4983, 400 + 300, "Honolulu is five hours behind"),
        (1410, 72, 266, 102, "past midnight"),
        (1320, 77, 2475, 197 + 180, "past midnight, and three hours behind"),
        (600, 595, 80, 55, "it arrives by the clock before it departs: the zone boundary is near"),
        (600, 600, 400, 120, "the same time by both clocks"),
    ],
)
def test_block_time_is_correct_across_time_zones_and_midnight(
    departs: int, arrives: int, distance: int, minutes: int, why: str
) -> None:
    assert block_minutes(departs, arrives, distance) == minutes, why


def test_block_time_without_a_distance_is_corrected_for_midnight_only() -> None:
    assert block_minutes(1410, 12, None) == 42
    assert block_minutes(600, 600, None) == 1440


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "UA,1018,N24224,EWR,IAH,2567,524,820,809,200,1400\n",
            r"sched_dep_time must be HHMM from 0 to 2400, not '2567'",
        ),
        (
            "UA,1018,N24224,EWR,IAH,2401,524,820,809,200,1400\n",
            r"sched_dep_time must be HHMM from 0 to 2400, not '2401'",
        ),
        ("UA,1018,N24224,EWR,IAH,525,late,820,809,200,1400\n", r"dep_time must be HHMM from 0 to 2400, not 'late'"),
        ("UA,1018,N24224,EWR,IAH,525,524,,809,200,1400\n", r"sched_arr_time must be HHMM from 0 to 2400, not ''"),
        (
            "UA,1018,N24224,EWR,IAH,525,524,820,809,-5,1400\n",
            r"air_time must be a whole number from 1 to 1440, not '-5'",
        ),
        ("UA,1018,N24224,EWR,IAH,525,524,820,809,200,far\n", r"distance must be a whole number .* not 'far'"),
        (",1018,N24224,EWR,IAH,525,524,820,809,200,1400\n", r"carrier must be a value of 1 to 32 printable"),
        ("UA,1018,N\x1b1,EWR,IAH,525,524,820,809,200,1400\n", r"tailnum must be a value of 1 to 32 printable"),
        ("UA,1018,N24224\n", r"expected 11 fields"),
        ("UA,1018,N24224,EWR,IAH,525,524,820,809,200,1400,more\n", r"expected 11 fields"),
        (LINE, r"flight UA1018-EWR-0525 is on line 2 already"),
    ],
)
def test_an_invalid_line_is_named_with_its_error(line: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"day.csv line 3: {message}"):
        parse(HEAD + LINE + line, "day.csv")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"day.csv line 1: missing columns: tailnum, distance"):
        parse(HEAD.replace("tailnum,", "").replace(",distance", ""), "day.csv")


@pytest.mark.parametrize("text", ["", HEAD])
def test_a_file_without_flights_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"has no flights|missing columns"):
        parse(text)


def test_midnight_is_0_or_2400() -> None:
    assert parse_line(LINE.replace(",525,", ",2400,")).departs == 1440
    assert parse_line(LINE.replace(",525,", ",0,")).departs == 0


def test_the_day_starts_with_its_first_departure_and_ends_with_its_last_landing() -> None:
    day = flights.read(flights.sample())
    timetable = Timetable(day, seconds=30, start_ms=1_000_000)
    flown = [departure for departure in timetable.departures if not departure.flight.cancelled]
    assert min(departure.due_ms for departure in timetable.departures) == 1_000_000
    assert max(departure.due_ms for departure in timetable.departures) <= timetable.end_ms == 1_030_000
    assert max(departure.due_ms + departure.flight_ms for departure in flown) <= timetable.end_ms + 1
    assert all(departure.due_ms < departure.deadline_ms for departure in timetable.departures)
    assert (timetable.clock(0), timetable.clock(1_000_000)) == ("05:00", "05:00")


def test_times_are_compressed_in_proportion() -> None:
    text = HEAD + LINE + "UA,2,N1,EWR,IAH,725,724,820,809,100,1400\n"
    timetable = Timetable(parse(text), seconds=22, start_ms=0)
    first, second = timetable.departures
    assert (first.due_ms, first.flight_ms) == (0, 20_000)
    assert (second.due_ms, second.flight_ms) == (12_000, 10_000)


def test_a_day_of_a_single_cancelled_flight_has_a_length() -> None:
    timetable = Timetable([parse_line("US,1,N9,LGA,BOS,1000,,1108,,,184\n")], seconds=5, start_ms=0)
    assert timetable.departures[0].due_ms == 0
    assert timetable.clock(10**9) == "10:00"


def test_a_flight_with_an_aircraft_goes_to_the_exclusive_queue_and_one_without_to_the_plain_one() -> None:
    text = HEAD + LINE + LINE.replace("N24224", "").replace("1018", "1019")
    assert [departure.queue for departure in Timetable(parse(text), 5, 0).departures] == [FLIGHTS, UNASSIGNED]


def test_the_busiest_minute_counts_flights_in_the_air_at_once() -> None:
    text = HEAD + "".join(
        f"UA,{n},N{n},EWR,IAH,{departs},{departs},900,900,{minutes},1400\n"
        for n, departs, minutes in [(1, 600, 60), (2, 630, 60), (3, 700, 30), (4, 730, 10)]
    )
    assert max_airborne(Timetable(parse(text), 60, 0).departures) == 2
