"""A day compressed to seconds: the due time of each flight on the server's clock, and its duration."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from tickwheel.demo.flights import Flight

FLIGHTS, UNASSIGNED = "flights", "unassigned"
_HOUR, _DAY = 60, 1440


@dataclass(frozen=True, slots=True)
class Departure:
    """A flight with its times in ms: due time and deadline since 1970, and its duration ``flight_ms``."""

    flight: Flight
    due_ms: int
    deadline_ms: int
    flight_ms: int

    @property
    def queue(self) -> str:
        """Return the queue of the flight. A flight without an aircraft cannot enter the exclusive queue."""
        return FLIGHTS if self.flight.aircraft else UNASSIGNED


class Timetable:
    """The day from the first departure to the last landing, compressed to ``seconds``, starting at ``start_ms``."""

    def __init__(self, flights: Iterable[Flight], seconds: float, start_ms: int) -> None:
        listed = list(flights)
        self.start_ms = start_ms
        self.first = min(flight.departs for flight in listed)
        self.last = max(flight.departs if flight.cancelled else flight.departs + flight.minutes for flight in listed)
        self.ms_per_minute = seconds * 1000 / max(self.last - self.first, 1)
        self.departures = [
            Departure(
                flight,
                due_ms=self._at(flight.departs),
                deadline_ms=self._at(flight.arrives),
                flight_ms=max(1, round(flight.minutes * self.ms_per_minute)),
            )
            for flight in listed
        ]
        self.end_ms = self._at(self.last)

    def _at(self, minute: int) -> int:
        return self.start_ms + round((minute - self.first) * self.ms_per_minute)

    def minute(self, now_ms: int) -> int:
        """Return the minute of the simulated day at a moment, limited to the first and last minute of that day."""
        return min(max(self.first + int((now_ms - self.start_ms) / self.ms_per_minute), self.first), self.last)

    def clock(self, now_ms: int) -> str:
        """Return the time of the simulated day at a moment, for display."""
        minute = self.minute(now_ms)
        return f"{minute // _HOUR % 24:02d}:{minute % _HOUR:02d}" + (" (+1)" if minute >= _DAY else "")


def max_airborne(departures: Iterable[Departure]) -> int:
    """Return the maximum number of flights in the air at the same time if each departs on time."""
    steps = []
    for departure in departures:
        if not departure.flight.cancelled:
            steps += [(departure.due_ms, 1), (departure.due_ms + departure.flight_ms, -1)]
    return max(accumulate(step for _, step in sorted(steps)), default=0)
