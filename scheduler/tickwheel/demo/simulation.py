"""The run of a day: enqueue every flight, cancel in time, watch the events until the end, and check the day."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tickwheel import InvalidArgument, NewMessage, Tickwheel, TickwheelError
from tickwheel.client.admin import Admin
from tickwheel.demo import logbook
from tickwheel.demo.checks import Verdict, check_day
from tickwheel.demo.display import View
from tickwheel.demo.flight_board import FlightBoard
from tickwheel.demo.flights import Flight
from tickwheel.demo.timetable import FLIGHTS, UNASSIGNED, Departure, Timetable, max_airborne
from tickwheel.model.validation import from_ms
from tickwheel.operations.outbox_reader import OutboxReader
from tickwheel.plan import Request, send_request
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.python_command import python_module
from tickwheel.storage.record import State

EXCLUSIVE_KEY = "aircraft"
# Time from the first enqueue to the first departure.
_LEAD_MS = 4_000
# How long before its due time a flight is cancelled: the longer of a real time and a time in minutes of the simulated
# day.
_CANCEL_MS = 3_000
_CANCEL_MINUTES = 60
# A lease lasts for the duration of the flight plus this time.
_LEASE_SPARE_MS = 1_000
_SPARE_PILOTS = 1.25
_TICK_S = 0.1
_CANCELS_A_TICK = 50
_START_S = 30.0
_STOP_S = 10.0
# The demo stops when this time has passed since the last planned landing, even if flights are unfinished. By then, the
# leases of dead workers have ended.
_GIVE_UP_MS = 15_000
_LAST_PAGE_S = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the day. ``url`` or ``data_dir`` sets the server; ``folder`` is for the logbooks.

    ``timeout`` is the timeout of the workers' clients; None means the default.
    """

    seconds: float
    workers: int
    namespace: str
    url: str | None
    data_dir: Path | None
    folder: Path
    timeout: timedelta | None = None


def run(tickwheel: Tickwheel, flights: Sequence[Flight], settings: Settings, view: View) -> Verdict:
    """Run the day, and return its verdict."""
    tickwheel.create_queue(FLIGHTS, exclusive_key=EXCLUSIVE_KEY, indexed=["carrier", "origin"])
    tickwheel.create_queue(UNASSIGNED)
    # The start time, 0, does not matter: this timetable is only for the maximum number of flights in the air.
    planned = Timetable(flights, settings.seconds, 0).departures
    with _workers(settings, planned, view) as workers:
        clock = FollowedClock(tickwheel)
        timetable = Timetable(flights, settings.seconds, clock.now_ms() + _LEAD_MS)
        refused = _enqueue(tickwheel, timetable.departures, view)
        board = FlightBoard(timetable)
        _watch(tickwheel, board, clock, workers, view)
        landings = _landings(settings, board)
    return check_day(timetable.departures, board.history, landings, refused)


class FollowedClock:
    """The server's time. It is read once, and then extrapolated with this host's monotonic clock."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        seconds, micros = Admin(tickwheel).run(send_request(Request(0, command=("TIME",)))).value
        self._ahead = int(seconds) * 1000 + int(micros) // 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        return round(self._ahead + time.monotonic() * 1000)


def _enqueue(tickwheel: Tickwheel, departures: Sequence[Departure], view: View) -> list[str]:
    """Enqueue the flights in the exclusive queue, and return the ids of the flights that this queue rejects.

    The queue rejects flights without a tail number. They are then enqueued in a queue without an exclusive key.
    """
    flights = tickwheel.queue(FLIGHTS)
    flights.enqueue_many(_message(departure) for departure in departures if departure.flight.aircraft)
    refused: list[Departure] = []
    for departure in departures:
        if departure.flight.aircraft is None:
            try:
                flights.enqueue_many([_message(departure)])
            except InvalidArgument as error:
                if not refused:
                    view.print_line(f"rejected: {error}")
                refused.append(departure)
    tickwheel.queue(UNASSIGNED).enqueue_many(map(_message, refused))
    view.print_line(
        f"{len(departures) - len(refused)} flights scheduled in the exclusive queue, and {len(refused)} without a tail"
        " number in a queue without an exclusive key"
    )
    return [departure.flight.id for departure in refused]


def _message(departure: Departure) -> NewMessage:
    flight = departure.flight
    metadata = {"carrier": flight.carrier, "origin": flight.origin}
    if flight.aircraft is not None:
        metadata[EXCLUSIVE_KEY] = flight.aircraft
    return NewMessage(
        json.dumps({"flight": flight.name, "to": flight.destination, "flight_ms": departure.flight_ms}).encode(),
        id=flight.id,
        due=from_ms(departure.due_ms),
        deadline=from_ms(departure.deadline_ms),
        metadata=metadata,
        lease=timedelta(milliseconds=departure.flight_ms + _LEASE_SPARE_MS),
    )


def _watch(
    tickwheel: Tickwheel,
    board: FlightBoard,
    clock: FollowedClock,
    workers: Sequence[subprocess.Popen[bytes]],
    view: View,
) -> None:
    """Cancel flights in time and follow the events, until every flight is finished or the time is up."""
    timetable, admin = board.timetable, Admin(tickwheel)
    history = OutboxReader(admin.context)
    lead_ms = max(_CANCEL_MS, _CANCEL_MINUTES * timetable.ms_per_minute)
    cancelled = sorted((d for d in timetable.departures if d.flight.cancelled), key=lambda d: -d.due_ms)
    alive = list(workers)
    while not board.complete and clock.now_ms() < timetable.end_ms + _GIVE_UP_MS:
        for _ in range(_CANCELS_A_TICK):
            if cancelled and cancelled[-1].due_ms <= clock.now_ms() + lead_ms:
                departure = cancelled.pop()
                tickwheel.queue(departure.queue).cancel(departure.flight.id, departure.flight.aircraft)
        while page := admin.run(history.next()):
            board.apply(page)
        for worker in [worker for worker in alive if worker.poll() is not None]:
            alive.remove(worker)
            view.print_line(
                f"a worker ended with exit code {worker.returncode}: its flights are redelivered when their leases end"
            )
        view.show(board, clock.now_ms())
        time.sleep(_TICK_S)
    view.show(board, clock.now_ms())


def _landings(settings: Settings, board: FlightBoard) -> list[logbook.Landing]:
    """Read all logbooks. Waits up to 5 s, because a worker records a landing shortly after the event."""
    until = time.monotonic() + _LAST_PAGE_S
    while True:
        landings = [landing for number in _numbers(settings) for landing in logbook.read(_path(settings, number))]
        if sum(landing.completed for landing in landings) >= board.count(State.COMPLETED) or time.monotonic() > until:
            return landings
        time.sleep(_TICK_S)


@contextmanager
def _workers(settings: Settings, planned: Sequence[Departure], view: View) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the worker processes, with enough pilots for the maximum number of flights in the air.

    The processes end even if this program is killed.
    """
    crews = {}
    for queue in (FLIGHTS, UNASSIGNED):
        peak = max_airborne(departure for departure in planned if departure.queue == queue)
        crews[queue] = max(1, -(-int(_SPARE_PILOTS * peak) // settings.workers))
    view.print_line(
        f"{settings.workers} workers, each with {crews[FLIGHTS]} pilots, for up to"
        f" {max_airborne(planned)} flights in the air at the same time"
    )
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in _numbers(settings):
            command = python_module("tickwheel.demo.pilots", "--worker", f"worker-{number}")
            command += ["--namespace", settings.namespace, "--logbook", str(_path(settings, number))]
            command += [] if settings.url else ["--data-dir", str(settings.data_dir)]
            command += [] if settings.timeout is None else ["--timeout", str(settings.timeout.total_seconds())]
            command += [f"--crew={queue}={pilots}" for queue, pilots in crews.items()]
            # In a new session, so that Ctrl-C reaches only this program, which stops the workers.
            started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                    env=os.environ | {VARIABLE: settings.url or ""},
                )
            )
        for worker in started:
            assert worker.stdout is not None
            if worker.stdout.readline() != b"ready\n":
                raise TickwheelError(f"a worker ended with exit code {worker.wait(_START_S)} before it was ready")
        yield started
    finally:
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in started:
            try:
                worker.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()


def _numbers(settings: Settings) -> range:
    return range(1, settings.workers + 1)


def _path(settings: Settings, number: int) -> Path:
    return settings.folder / f"worker-{number}.jsonl"
