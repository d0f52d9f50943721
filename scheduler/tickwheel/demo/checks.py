"""The checks at the end of the day, from the event stream and the workers' logbooks alone.

No check asks the scheduler for the state of a message. The checks use only the events, and the entries of the logbooks:
a worker writes a *landing* when it ends a flight. The functions are pure, so that a test can call them with the records
of a faulty day.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tickwheel.demo.flight_board import percentile
from tickwheel.demo.logbook import Landing
from tickwheel.demo.timetable import Departure
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, whether it holds, and the evidence."""

    claim: str
    holds: bool
    evidence: str

    def document(self) -> dict[str, Any]:
        """Return the check as JSON values. The keys are an interface of `tickwheel demo`."""
        return {"claim": self.claim, "holds": self.holds, "figures": self.evidence}


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in ms. All fields are None if there are no values."""

    p50: int | None
    p99: int | None
    worst: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of all checks. ``ready_late``: time from due to deliverable. ``taken_late``: from due to dequeued."""

    flights: int
    completed: int
    cancelled: int
    checks: list[Check]
    ready_late: Spread
    taken_late: Spread

    @property
    def passed(self) -> bool:
        return all(check.holds for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return {"passed": self.passed} | asdict(self) | {"checks": [check.document() for check in self.checks]}


Interval = tuple[int, int, str]


def check_day(
    departures: Sequence[Departure],
    history: Iterable[OutboxTransition],
    landings: Sequence[Landing],
    refused: Sequence[str],
) -> Verdict:
    """Run all checks. ``refused`` are the flights that the exclusive queue rejected."""
    lives: dict[str, list[OutboxTransition]] = defaultdict(list)
    for transition in history:
        lives[transition.id].append(transition)
    for life in lives.values():
        life.sort(key=lambda transition: (transition.incarnation, transition.version))
    ends = {departure.flight.id: _end(lives[departure.flight.id]) for departure in departures}
    completed = sum(end is State.COMPLETED for end in ends.values())
    cancelled = sum(end is State.CANCELLED for end in ends.values())
    taken = [
        (departure, transition)
        for departure in departures
        for transition in lives[departure.flight.id]
        if transition.to_state is State.RUNNING
    ]
    checks = [
        Check(
            f"completed + cancelled = {len(departures)}",
            completed + cancelled == len(departures),
            f"{completed} + {cancelled} = {completed + cancelled}",
        ),
        _check_outcomes(departures, ends),
        _check_nothing_lost(departures, lives, ends, landings),
        _check_none_early(taken),
        _check_cancelled_in_time(departures, lives),
        _check_one_place_by_logbooks(landings),
        _check_one_place_by_events(departures, lives),
        _check_refused_flights(departures, refused),
    ]
    ready_late = [
        transition.time_ms - departure.due_ms
        for departure in departures
        for transition in lives[departure.flight.id]
        if transition.from_state is State.INVISIBLE and transition.to_state is State.PENDING
    ]
    taken_late = [transition.time_ms - departure.due_ms for departure, transition in taken if transition.attempt == 1]
    return Verdict(len(departures), completed, cancelled, checks, _spread(ready_late), _spread(taken_late))


def _end(life: Sequence[OutboxTransition]) -> State | None:
    return life[-1].to_state if life else None


def _check_outcomes(departures: Sequence[Departure], ends: dict[str, State | None]) -> Check:
    wrong = [
        departure.flight.id
        for departure in departures
        if ends[departure.flight.id] is not (State.CANCELLED if departure.flight.cancelled else State.COMPLETED)
    ]
    flew = sum(not departure.flight.cancelled for departure in departures)
    return Check(
        "flights that took place on the real day were completed, all others cancelled",
        not wrong,
        f"{flew} flown, {len(departures) - flew} cancelled"
        if not wrong
        else f"{len(wrong)} have another outcome: {_first_names(wrong)}",
    )


def _check_nothing_lost(
    departures: Sequence[Departure],
    lives: dict[str, list[OutboxTransition]],
    ends: dict[str, State | None],
    landings: Sequence[Landing],
) -> Check:
    """Check that every flight's events have no gap, and that each completed flight is in a logbook exactly once."""
    written: dict[str, int] = defaultdict(int)
    for landing in landings:
        written[landing.flight] += landing.completed
    broken = [d.flight.id for d in departures if not _is_unbroken(lives[d.flight.id])]
    differing = [d.flight.id for d in departures if written[d.flight.id] != (ends[d.flight.id] is State.COMPLETED)]
    faults = []
    if broken:
        faults.append(f"{len(broken)} with gaps in their events: {_first_names(broken)}")
    if differing:
        faults.append(f"{len(differing)} whose landings differ from their events: {_first_names(differing)}")
    events = sum(len(life) for life in lives.values())
    evidence = f"{events} events without a gap, {sum(written.values())} landings in logbooks"
    return Check("nothing lost, nothing twice", not faults, "; ".join(faults) or evidence)


def _is_unbroken(life: Sequence[OutboxTransition]) -> bool:
    if not life or life[0].from_state is not None:
        return False
    return all(
        after.incarnation == before.incarnation
        and after.version == before.version + 1
        and after.from_state is before.to_state
        and after.time_ms >= before.time_ms
        for before, after in pairwise(life)
    )


def _check_none_early(taken: Sequence[tuple[Departure, OutboxTransition]]) -> Check:
    margins = [transition.time_ms - departure.due_ms for departure, transition in taken]
    early = [departure.flight.id for (departure, _), margin in zip(taken, margins, strict=True) if margin < 0]
    evidence = f"each at least {min(margins)} ms after its due time" if margins else "none departed"
    return Check(
        "none departed before its due time, by the server's clock",
        not early,
        evidence if not early else f"{len(early)} early: {_first_names(early)}, by up to {-min(margins)} ms",
    )


def _check_cancelled_in_time(departures: Sequence[Departure], lives: dict[str, list[OutboxTransition]]) -> Check:
    margins = {
        departure.flight.id: departure.due_ms - transition.time_ms
        for departure in departures
        for transition in lives[departure.flight.id]
        if transition.to_state is State.CANCELLED
    }
    late = [flight for flight, margin in margins.items() if margin <= 0]
    evidence = f"each at least {min(margins.values())} ms before its due time" if margins else "none was cancelled"
    return Check(
        "cancelled before they were due", not late, evidence if not late else f"{len(late)} late: {_first_names(late)}"
    )


def _check_one_place_by_logbooks(landings: Sequence[Landing]) -> Check:
    flown: dict[str, list[Interval]] = defaultdict(list)
    for landing in landings:
        if landing.aircraft is not None:
            flown[landing.aircraft].append((landing.off_ns, landing.on_ns, landing.flight))
    return _check_one_place("no aircraft in two places at once, by the logbooks", flown)


def _check_one_place_by_events(departures: Sequence[Departure], lives: dict[str, list[OutboxTransition]]) -> Check:
    flown: dict[str, list[Interval]] = defaultdict(list)
    for departure in departures:
        aircraft, off_ms = departure.flight.aircraft, None
        for transition in lives[departure.flight.id] if aircraft else ():
            if transition.to_state is State.RUNNING:
                off_ms = transition.time_ms
            elif transition.from_state is State.RUNNING and off_ms is not None:
                flown[aircraft or ""].append((off_ms, transition.time_ms, departure.flight.id))
    return _check_one_place("no aircraft in two places at once, by the events", flown)


def _check_one_place(claim: str, flown: dict[str, list[Interval]]) -> Check:
    """Check that no two flights of an aircraft overlap."""
    overlaps = []
    for aircraft, intervals in flown.items():
        until, holder = 0, ""
        for off, on, flight in sorted(intervals):
            if off < until:
                overlaps.append(f"{aircraft} on {holder} and {flight}")
            if on > until:
                until, holder = on, flight
    several = sum(len(intervals) > 1 for intervals in flown.values())
    evidence = f"{len(flown)} aircraft, {several} of them with several flights"
    return Check(
        claim, not overlaps, evidence if not overlaps else f"{len(overlaps)} overlaps: {_first_names(overlaps)}"
    )


def _check_refused_flights(departures: Sequence[Departure], refused: Sequence[str]) -> Check:
    without = {departure.flight.id for departure in departures if departure.flight.aircraft is None}
    return Check(
        "flights without a tail number rejected by the exclusive queue",
        without == set(refused),
        f"{len(refused)} of {len(without)}, and then accepted by a queue without an exclusive key",
    )


def _spread(values: Sequence[int]) -> Spread:
    return Spread(percentile(values, 0.5), percentile(values, 0.99), max(values, default=None))


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
