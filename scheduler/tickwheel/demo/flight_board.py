"""The state of every flight during the day, from the event stream, transition by transition."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from tickwheel.demo.timetable import Departure, Timetable
from tickwheel.model.state_machine import FINAL
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

_RECENT = 8


class FlightBoard:
    """The state of each flight, and totals. ``history`` has the transitions of all flights, in the order of reading."""

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self.history: list[OutboxTransition] = []
        self.states: dict[str, State] = {}
        self.airborne: Counter[str] = Counter()
        self.landed: Counter[str] = Counter()
        self.ready_late_ms: list[int] = []
        self.taken_late_ms: list[int] = []
        self.recent: deque[tuple[str, Departure, str]] = deque(maxlen=_RECENT)
        self._departures = {departure.flight.id: departure for departure in timetable.departures}
        self._pilots: dict[str, str] = {}

    @property
    def finished(self) -> int:
        """Return the number of flights whose state is final."""
        return self.count(*FINAL)

    @property
    def complete(self) -> bool:
        return self.finished == len(self._departures)

    def count(self, *states: State) -> int:
        """Return the number of flights in one of these states."""
        return sum(state in states for state in self.states.values())

    def apply(self, transitions: Iterable[OutboxTransition]) -> None:
        """Apply new transitions. Transitions of other messages are ignored."""
        for transition in transitions:
            departure = self._departures.get(transition.id)
            if departure is None:
                continue
            self.history.append(transition)
            self._apply_transition(transition, departure)

    def _apply_transition(self, transition: OutboxTransition, departure: Departure) -> None:
        flight, state = transition.id, transition.to_state
        if state is None:
            return
        self.states[flight] = state
        if transition.from_state is State.RUNNING:
            pilot = self._pilots.pop(flight, "")
            self.airborne[pilot] -= 1
            if state is State.COMPLETED:
                self.landed[pilot] += 1
                self.recent.append(("landed", departure, pilot))
        if state is State.PENDING and transition.from_state is State.INVISIBLE:
            self.ready_late_ms.append(transition.time_ms - departure.due_ms)
        elif state is State.RUNNING:
            self._pilots[flight] = transition.worker
            self.airborne[transition.worker] += 1
            if transition.attempt == 1:
                self.taken_late_ms.append(transition.time_ms - departure.due_ms)
            self.recent.append(("departed", departure, transition.worker))
        elif state is State.CANCELLED:
            self.recent.append(("cancelled", departure, ""))


def percentile(values: Sequence[int], share: float) -> int | None:
    """Return the percentile ``share`` (0 to 1) by nearest rank; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
