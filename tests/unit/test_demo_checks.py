"""The checks of the demo on invalid days: each kind of violation fails its own check."""

from dataclasses import replace

import pytest

from tickwheel.demo.checks import Verdict, check_day
from tickwheel.demo.flights import Flight
from tickwheel.demo.logbook import Landing
from tickwheel.demo.timetable import Departure
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.unit

INVISIBLE, PENDING, RUNNING = State.INVISIBLE, State.PENDING, State.RUNNING
COMPLETED, CANCELLED, ERRORED = State.COMPLETED, State.CANCELLED, State.ERRORED
MS = 1_000_000


def departure(number: str, due_ms: int, *, cancelled: bool = False, aircraft: str | None = "N1") -> Departure:
    flight = Flight(2, "UA", number, aircraft, "EWR", "IAH", 600, 700, 100, cancelled, False)
    return Departure(flight, due_ms, due_ms + 100, 100)


def step(
    id: str, version: int, before: State | None, after: State | None, time_ms: int, aircraft: str | None = "N1"
) -> OutboxTransition:
    return OutboxTransition(1, id, aircraft, 7, version, before, after, time_ms, 0, 1 if version > 2 else 0, "worker-1")


class Day:
    """Two consecutive flights of one aircraft, a cancelled flight, and a flight without a tail number."""

    def __init__(self) -> None:
        self.departures = [
            departure("1", 1_000),
            departure("2", 2_000),
            departure("3", 3_000, cancelled=True),
            departure("4", 4_000, cancelled=True, aircraft=None),
        ]
        self.first, self.second, self.third, self.fourth = (departure.flight.id for departure in self.departures)
        self.history = [
            step(self.first, 1, None, INVISIBLE, 0),
            step(self.first, 2, INVISIBLE, PENDING, 1_001),
            step(self.first, 3, PENDING, RUNNING, 1_003),
            step(self.first, 4, RUNNING, COMPLETED, 1_110),
            step(self.second, 1, None, INVISIBLE, 0),
            step(self.second, 2, INVISIBLE, PENDING, 2_000),
            step(self.second, 3, PENDING, RUNNING, 2_000),
            step(self.second, 4, RUNNING, COMPLETED, 2_110),
            step(self.third, 1, None, INVISIBLE, 0),
            step(self.third, 2, INVISIBLE, CANCELLED, 2_900),
            step(self.fourth, 1, None, INVISIBLE, 0, None),
            step(self.fourth, 2, INVISIBLE, CANCELLED, 3_900, None),
        ]
        self.landings = [
            Landing("worker-1", self.first, "N1", 1, 1_004 * MS, 1_105 * MS, True),
            Landing("worker-2", self.second, "N1", 1, 2_001 * MS, 2_101 * MS, True),
        ]
        self.refused = [self.fourth]

    def change(self, id: str, version: int, **fields: object) -> None:
        place = next(
            n for n, transition in enumerate(self.history) if (transition.id, transition.version) == (id, version)
        )
        self.history[place] = replace(self.history[place], **fields)  # type: ignore[arg-type]

    def verdict(self) -> Verdict:
        return check_day(self.departures, self.history, self.landings, self.refused)

    def fails(self) -> list[str]:
        verdict = self.verdict()
        assert verdict.passed == all(check.holds for check in verdict.checks)
        return [check.claim for check in verdict.checks if not check.holds]


def test_a_correct_day_passes_with_its_evidence() -> None:
    verdict = Day().verdict()
    assert verdict.passed
    assert (verdict.flights, verdict.completed, verdict.cancelled) == (4, 2, 2)
    assert (verdict.ready_late.p50, verdict.ready_late.worst) == (0, 1)
    assert (verdict.taken_late.p50, verdict.taken_late.p99) == (0, 3)
    document = verdict.document()
    assert document["passed"] is True
    assert all(check.keys() == {"claim", "holds", "figures"} for check in document["checks"])


def test_the_order_of_reading_the_shards_does_not_matter() -> None:
    day = Day()
    day.history.reverse()
    assert day.fails() == []


def test_a_lost_flight_fails() -> None:
    day = Day()
    day.history = [transition for transition in day.history if transition.id != day.second]
    day.landings.pop()
    assert "completed + cancelled = 4" in day.fails()
    assert "nothing lost, nothing twice" in day.fails()


def test_a_flight_that_never_landed_fails() -> None:
    day = Day()
    day.history = [transition for transition in day.history if (transition.id, transition.version) != (day.second, 4)]
    day.landings.pop()
    assert "completed + cancelled = 4" in day.fails()


def test_an_errored_flight_fails() -> None:
    day = Day()
    day.change(day.second, 4, to_state=ERRORED)
    assert "completed + cancelled = 4" in day.fails()


def test_a_cancelled_flight_that_should_have_flown_fails() -> None:
    day = Day()
    day.history = [
        transition
        for transition in day.history
        if (transition.id, transition.version) not in ((day.second, 3), (day.second, 4))
    ]
    day.change(day.second, 2, to_state=CANCELLED, time_ms=1_900)
    day.landings.pop()
    assert day.fails() == ["flights that took place on the real day were completed, all others cancelled"]


def test_a_completed_flight_without_a_landing_fails() -> None:
    day = Day()
    day.landings.pop()
    assert day.fails() == ["nothing lost, nothing twice"]


def test_a_landing_without_a_completed_message_fails() -> None:
    day = Day()
    day.landings.append(replace(day.landings[0], flight=day.third, off_ns=0, on_ns=1))
    assert day.fails() == ["nothing lost, nothing twice"]


def test_a_flight_that_landed_twice_fails() -> None:
    day = Day()
    day.landings.append(replace(day.landings[0], off_ns=5_000 * MS, on_ns=5_100 * MS))
    assert day.fails() == ["nothing lost, nothing twice"]


def test_a_landing_with_a_lost_lease_does_not_count() -> None:
    day = Day()
    day.landings.append(replace(day.landings[0], off_ns=5_000 * MS, on_ns=5_100 * MS, completed=False))
    assert day.fails() == []


def test_a_gap_in_the_versions_fails() -> None:
    day = Day()
    day.history = [transition for transition in day.history if (transition.id, transition.version) != (day.first, 2)]
    assert day.fails() == ["nothing lost, nothing twice"]


def test_inconsistent_events_fail() -> None:
    day = Day()
    day.change(day.first, 3, from_state=INVISIBLE)
    assert day.fails() == ["nothing lost, nothing twice"]


def test_a_departure_a_millisecond_early_fails() -> None:
    day = Day()
    day.change(day.second, 2, time_ms=1_999)
    day.change(day.second, 3, time_ms=1_999)
    assert day.fails() == ["none departed before its due time, by the server's clock"]


def test_a_cancellation_at_its_time_is_too_late() -> None:
    day = Day()
    day.change(day.third, 2, time_ms=3_000)
    assert day.fails() == ["cancelled before they were due"]


def test_an_aircraft_in_two_places_by_the_logbooks_fails() -> None:
    day = Day()
    day.landings[1] = replace(day.landings[1], off_ns=1_104 * MS)
    assert day.fails() == ["no aircraft in two places at once, by the logbooks"]


def test_an_aircraft_in_two_places_by_the_events_fails() -> None:
    day = Day()
    day.change(day.first, 4, time_ms=2_001)
    assert day.fails() == ["no aircraft in two places at once, by the events"]


def test_a_long_flight_is_compared_with_every_later_flight() -> None:
    day = Day()
    day.departures.append(departure("5", 2_500))
    last = day.departures[-1].flight.id
    steps = (None, INVISIBLE, PENDING, RUNNING, COMPLETED)
    day.history += [
        step(last, n + 1, steps[n], steps[n + 1], (0, 2_500, 2_500, 2_600)[n]) for n in range(len(steps) - 1)
    ]
    day.landings.append(Landing("worker-3", last, "N1", 1, 2_500 * MS, 2_590 * MS, True))
    assert day.fails() == []
    day.landings[0] = replace(day.landings[0], on_ns=2_550 * MS)
    verdict = day.verdict()
    [failed] = [check for check in verdict.checks if not check.holds]
    assert failed.evidence.startswith("2 overlaps: ")


def test_flights_that_touch_do_not_overlap() -> None:
    day = Day()
    day.landings[0] = replace(day.landings[0], on_ns=day.landings[1].off_ns)
    day.change(day.first, 4, time_ms=2_000)
    assert day.fails() == []


def test_a_flight_without_a_tail_number_must_be_refused() -> None:
    day = Day()
    day.refused.clear()
    assert day.fails() == ["flights without a tail number rejected by the exclusive queue"]
