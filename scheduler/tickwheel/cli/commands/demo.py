"""`tickwheel demo`: a day of real flights as messages, with checks at the end."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tickwheel import InvalidArgument, NamespaceNotFound, Tickwheel
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import print_json
from tickwheel.cli.scratch_namespace import delete_scratch
from tickwheel.cli.target import Target
from tickwheel.redis.url import redact
from tickwheel.runtime.text_escape import escape_unprintable


@command(
    "demo",
    "tickwheel demo",
    "tickwheel demo --seconds 120 --workers 8",
    "tickwheel demo --file flights-2013-01-02.csv",
    "tickwheel demo --url redis://localhost:6379 --json",
)
def demo(
    target: Target,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="A file of another day, with the columns of the data set nycflights13. Default: 2013-02-08, the day of"
            " a blizzard.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=3, max=86_400, help="Time from the first departure to the last landing.")
    ] = 30,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 4,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of shards of the namespace.")] = 4,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the namespace and the data at the end, for inspection.")
    ] = False,
) -> None:
    """Watch a day of real flights go through the scheduler.

    Each departure is a message. Its due time is the scheduled departure, its deadline the scheduled arrival, and its
    exclusive value the aircraft. Workers simulate the flights. The messages of cancelled flights are cancelled before
    they are due. At the end, the command prints a table of checks, computed from the event stream and the workers'
    logbooks. If a check fails, the exit code is 1.

    The demo runs in a temporary folder. With --url or --data-dir, it runs in a temporary namespace on that server. At
    the end, the folder is deleted. The namespace is deleted, too, unless the demo ends with an interrupt or an error.
    """
    from tickwheel.demo import flights, simulation
    from tickwheel.demo.display import open_view, print_verdict

    day_of_flights = flights.read(flights.sample() if file is None else file)
    # SIGTERM ends the demo like Ctrl-C: workers and server are stopped, and the temporary folder is deleted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _scratch(target, keep=keep) as (scratch, folder), open_view(json=target.json) as view:
        namespace = scratch.namespace or ""
        with Tickwheel(
            scratch.url,
            namespace=namespace,
            shards=shards,
            data_dir=scratch.data_dir,
            drive=True,
            timeout=scratch.timeout,
        ) as tickwheel:
            if tickwheel.queues():
                # Another program has created the namespace since `_check_is_new`.
                raise _exists_error(namespace)
            settings = simulation.Settings(
                seconds, workers, namespace, scratch.url, scratch.data_dir, folder, scratch.timeout
            )
            verdict = simulation.run(tickwheel, day_of_flights, settings, view)
    if target.json:
        print_json(verdict.document())
    else:
        print_verdict(verdict)
        if keep:
            location = f"--url {redact(scratch.url)}" if scratch.url else f"--data-dir {scratch.data_dir}"
            command_line = f"tickwheel counts {location} --namespace {scratch.namespace}"
            print(f"to inspect the remaining data: {escape_unprintable(command_line)}")
    if not verdict.passed:
        raise CommandError("not all checks of the demo passed")


@contextmanager
def _scratch(target: Target, *, keep: bool) -> Iterator[tuple[Target, Path]]:
    """Yield the target and a folder of the demo. Unless ``keep``, delete the namespace and the folder at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-demo-"))
    namespace = target.namespace or f"demo-{os.urandom(3).hex()}"
    own = target.url is None and target.data_dir is None
    scratch = Target(
        target.require_redis("demo").url, folder / "data" if own else target.data_dir, namespace, target.timeout
    )
    finished = False
    try:
        if target.namespace is not None and not own:
            _check_is_new(scratch)
        yield scratch, folder
        finished = True
    finally:
        # After an error, the namespace stays: it may be one that the demo has rejected.
        if not own and not keep and finished:
            delete_scratch(scratch)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _check_is_new(target: Target) -> None:
    """Raise InvalidArgument if the namespace exists, also without queues: the demo deletes its namespace at the end."""
    try:
        target.open().close()
    except NamespaceNotFound:
        return
    raise _exists_error(target.namespace or "")


def _exists_error(namespace: str) -> InvalidArgument:
    return InvalidArgument(
        f"namespace {namespace!r} exists, and the demo creates a namespace and deletes it at the end: use another name,"
        " or leave --namespace and TICKWHEEL_NAMESPACE out"
    )
