"""`tickwheel load`: simulates a production load. Reports how the server performs and how many workers are needed."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel import InvalidArgument, aio
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.load_progress import View, open_view, print_report
from tickwheel.cli.output import print_json, print_status
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.scratch_namespace import delete_scratch
from tickwheel.cli.target import Target
from tickwheel.client.exit_codes import ExitCode
from tickwheel.rpc.url import is_grpc_url
from tickwheel.runtime.extras import describe_install

if TYPE_CHECKING:
    from tickwheel.load.capacity.hourly_needs import CapacityTarget
    from tickwheel.load.run.run import Settings
    from tickwheel.load.run.run_result import RunResult
    from tickwheel.load.scenario.source import Source

_REQUIRED_MODULES = ("hdrh", "jinja2", "matplotlib")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of `tickwheel load`."""

    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="order-timeouts, media-encoding, timestone, a .toml file, or a recording as a .csv file.",
        ),
    ]
    scale: Annotated[
        float,
        typer.Option(min=1e-6, max=1e6, help="Factor for messages and workers; below 1 for small machines."),
    ] = 1.0
    speed_up: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1e6, help="Factor for the speed of the scenario's day; with 60, an hour takes a minute."
        ),
    ] = None
    start: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration), metavar="DURATION", help="Start at this time of the day, like 8h."
        ),
    ] = None
    length: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration), metavar="DURATION", help="Run this much of the day, like 2h."
        ),
    ] = None
    seconds: Annotated[
        timedelta | None,
        typer.Option(
            "--for",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="End after this real time, like 30s.",
        ),
    ] = None
    messages: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Maximum number of messages to enqueue; multiplied by --scale.")
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, max=100_000, help="Total number of workers.")] = None
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Random seed; the same seed results in the same plan.")
    ] = None
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of shards of the temporary namespace.")] = 1
    wait_target: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Compute how many workers are needed so that tasks start at most this long after they are due."
            " Default: the scenario's target, or 5s if it has none.",
        ),
    ] = None
    percentile: Annotated[
        float, typer.Option(min=0.5, max=0.999, help="Share of the messages of every queue that must meet the target.")
    ] = 0.95
    simulate_only: Annotated[
        bool, typer.Option("--simulate-only", help="Run nothing: only compute the needed workers with the simulator.")
    ] = False
    report: Annotated[
        Path | None, typer.Option(metavar="HTML", help="The report to write; a JSON file of the same name is added.")
    ] = None

    def source(self) -> "Source":
        """Return the scenario, changed by the options."""
        from tickwheel.load.scenario.source import Source

        return Source(
            self.scenario,
            self.scale,
            self.speed_up,
            self.seed,
            _seconds(self.start),
            _seconds(self.length),
            _seconds(self.seconds),
            self.messages,
            self.workers,
        )

    def capacity_target(self) -> "CapacityTarget":
        from tickwheel.load.capacity.hourly_needs import CapacityTarget

        return CapacityTarget(_seconds(self.wait_target), self.percentile)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


@command(
    "load",
    "tickwheel load order-timeouts --scale 0.01 --speed-up 2880",
    "tickwheel load media-encoding --simulate-only --start 20h --length 2h",
    "tickwheel load recorded.csv --speed-up 60 --url redis://localhost:6379",
)
def load(target: Target, options: LoadOptions) -> None:
    """Put a server under a production load, and compute how many workers the load needs.

    A scenario defines the messages of a day, the duration of their work, and the workers. By default, the load runs in
    a temporary namespace, which is deleted at the end. With --namespace, the load runs in this namespace. If --url is
    set, too, an event process must drive the namespace. Ctrl-C ends the run with a report of the part that ran.
    """
    for name in _REQUIRED_MODULES:
        if find_spec(name) is None:
            raise InvalidArgument(f"load needs {name}: {describe_install('load')}")
    from tickwheel.load.report import files

    report = options.report
    if report is None and not options.simulate_only and not target.json:
        report = Path("load-report.html")
    if report is not None:
        files.check_files(report)
    source, capacity_target = options.source(), options.capacity_target()
    source.scenario()
    with open_view(json=target.json) as view:
        outcome = None if options.simulate_only else _run(target, source, options.shards, view)
        document, is_complete = _build_report(source, capacity_target, outcome, view)
    try:
        if report is not None:
            from tickwheel.load.report.report import render_page

            files.write_files(report, render_page(document), document)
    finally:
        # The results are not lost if the files cannot be written.
        if target.json:
            print_json(document)
        else:
            print_report(document)
    if report is not None:
        print_status(f"report: {report} and {files.document_path(report)}")
    if not is_complete or (outcome is not None and outcome.interrupted):
        raise typer.Exit(ExitCode.INTERRUPTED)
    if outcome is not None and outcome.problems:
        raise CommandError(f"the load did not run as planned: {'; '.join(outcome.problems)}")


def _run(target: Target, source: "Source", shards: int, view: View) -> "RunResult":
    with _prepare_run(target, source) as settings:
        try:
            return asyncio.run(_run_in(settings, shards, view))
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error


async def _run_in(settings: "Settings", shards: int, view: View) -> "RunResult":
    from tickwheel.load.run.run import cancel_remaining, run

    # If the user set both --namespace and --url, an event process must already drive the namespace. In all other cases,
    # the client starts an event process as a child.
    drives = settings.is_ours or settings.url is None
    namespace_options = {"shards": shards} if settings.is_ours else {}
    tickwheel = aio.Tickwheel(
        settings.url,
        namespace=settings.namespace,
        data_dir=settings.data_dir,
        drive=True if drives else None,
        timeout=settings.timeout,
        **namespace_options,  # type: ignore[arg-type]  # the number of shards alone
    )
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    if (task := asyncio.current_task()) is not None:
        # Until the client is open, there is no run to stop, so SIGTERM cancels this task.
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    async with tickwheel:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        outcome = await run(settings, tickwheel, stopping, view.show_run)
        if not settings.is_ours:
            count = await cancel_remaining(tickwheel, outcome.scenario, settings.prefix)
            outcome.cleanup = (
                f"The namespace remains; {count} unfinished messages were cancelled, and finished messages are"
                " deleted when their retention ends."
            )
    # From here on, a signal ends the program as usual.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    return outcome


@contextmanager
def _prepare_run(target: Target, source: "Source") -> Iterator["Settings"]:
    """Yield the settings of the run. At the end, delete the temporary folder or namespace, also after an error."""
    from tickwheel.load.run.run import Settings

    if target.url is not None and is_grpc_url(target.url) and target.namespace is None:
        raise InvalidArgument(
            "over grpc://, set --namespace to a namespace that an event process drives; finished messages stay in it"
            " until their retention ends"
        )
    run_id = os.urandom(4).hex()
    # Without --url and --data-dir the run uses an embedded server in a temporary folder.
    folder = (
        Path(tempfile.mkdtemp(prefix="tickwheel-load-")) if target.url is None and target.data_dir is None else None
    )
    settings = Settings(
        source,
        target.namespace or f"load-{run_id}",
        target.url,
        target.data_dir if folder is None else folder / "data",
        is_ours=target.namespace is None,
        timeout=target.timeout,
        prefix=f"load-{run_id}",
    )
    try:
        yield settings
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        elif settings.is_ours:
            delete_scratch(replace(target, namespace=settings.namespace))


def _build_report(
    source: "Source", capacity_target: "CapacityTarget", outcome: "RunResult | None", view: View
) -> tuple[dict[str, object], bool]:
    """Return the report's document, and whether its capacity table is complete.

    The table is computed for the full scenario, even if the run was scaled down. A signal stops the computation; the
    table is then incomplete.
    """
    from tickwheel.load.capacity.advice import advise
    from tickwheel.load.report import report

    full_scenario = source.full().scenario()
    # After an interrupted run the user does not want to wait for the table.
    stopping = outcome is not None and outcome.interrupted

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        document = report.build_document(
            outcome, advise(full_scenario, capacity_target, outcome, view.show_hour, lambda: stopping)
        )
        return document, not stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
