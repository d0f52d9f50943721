"""`tickwheel worker`: processes that run the tasks of an app."""

import logging
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.drive_option import Drive, DriveKafka, DriveOption, last_resort_options
from tickwheel.cli.kafka_options import KafkaConfig, KafkaSetting, SinkTopics, Topic
from tickwheel.cli.metrics_option import Insecure, metrics_address, serving_metrics, sharing_metrics
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.signals import handle_in_thread, ignore_sigusr1

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_log = logging.getLogger("tickwheel.worker")
# Less than the 30 s after which Kubernetes kills a process.
_DRAIN = timedelta(seconds=25)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"([0-9]+)(?:([KMG])i?B?|B)?")


def parse_size(text: str) -> int:
    """Parse a size like ``512MiB`` into bytes. Raises InvalidArgument."""
    matched = _SIZE.fullmatch(text)
    if matched is None or int(matched[1]) == 0:
        raise InvalidArgument(f"a size is written like 512MiB or 2GiB, not {text!r:.80}")
    return int(matched[1]) * _UNITS[matched[2] or ""]


class LogTasks(StrEnum):
    """Whether a worker logs every task."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of `tickwheel worker`."""

    app: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The TaskApp, in a module of this directory or installed.")
    ]
    processes: Annotated[int, typer.Option(min=1, max=1024, help="Number of independent processes.")] = 1
    threads: Annotated[
        int,
        typer.Option(
            min=1, max=1024, help="Number of tasks that a process runs at a time; async tasks share an event loop."
        ),
    ] = 1
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue to take messages from; may be repeated. Default: all queues.")
    ] = None
    selector: Annotated[
        str,
        typer.Option(
            help="How a process chooses its next queue: reduced-lottery, lottery, highest-priority-first,"
            " highest-priority-lottery, random, or module:Class."
        ),
    ] = "reduced-lottery"
    drain: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="How long a task may continue after SIGTERM (default 25s).",
        ),
    ] = None
    memory_limit: Annotated[
        int | None,
        typer.Option(
            parser=option_parser(parse_size),
            metavar="SIZE",
            help="Replace a process that uses more memory than this, like 512MiB. Checked after each batch.",
        ),
    ] = None
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve Prometheus metrics under /metrics, and a health check under /healthz."
        ),
    ] = None
    insecure: Insecure = False
    log_tasks: Annotated[
        LogTasks,
        typer.Option(
            help="With on (default), log each task and its outcome. With off, log only failures and lost leases."
        ),
    ] = LogTasks.ON
    drive: DriveOption = Drive.AUTO
    kafka: DriveKafka = None
    topic: Topic = None
    kafka_setting: KafkaSetting = None
    kafka_config: KafkaConfig = None
    sink_topics: SinkTopics = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level.")] = False


@command("worker", "tickwheel worker shop:app", "tickwheel worker shop:app --processes 4 --queue mail --queue default")
def worker(target: Target, options: WorkerOptions) -> None:
    """Run the tasks of an app. Each process takes batches of messages from the queue that its --selector chooses.

    Leases are renewed while a task runs. On SIGTERM or SIGINT, running tasks may finish, and messages that were not
    started are released. A second signal ends all tasks immediately. If the namespace is gone, because the server has
    lost its data or the namespace was deleted, the worker finishes its running tasks and ends with exit code 1.

    If no event process drives the namespace, a child process of the worker does, unless --drive is never. The log names
    the reason if the child cannot drive, and warns while nobody drives.

    The log goes to stderr: each task, with its outcome once the server has accepted it, but never arguments.
    """
    try:
        from tickwheel.worker.process import ProcessConfig
        from tickwheel.worker.stats import Stats
        from tickwheel.worker.supervisor import Supervisor
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the worker needs {error.name}: {describe_install('worker')}") from error
    page = metrics_address(options.metrics, insecure=options.insecure)
    log_to_stderr(json=target.json, verbose=options.verbose)
    driving = last_resort_options(options, _log, json=target.json)
    from_environment, overrides = Target.from_environment(), target.app_overrides()
    _check_texts(options, overrides)
    config = ProcessConfig(
        app=options.app,
        shared_state_fd=-1,
        report_fd=-1,
        consumers=options.threads,
        selector=options.selector,
        queues=options.queue or None,
        client_options=overrides,
        timeout_s=_seconds(None if target.timeout == from_environment.timeout else target.timeout),
        default_timeout_s=_seconds(from_environment.timeout),
        memory_limit=options.memory_limit,
        drain_s=(_DRAIN if options.drain is None else options.drain).total_seconds(),
        json=target.json,
        verbose=options.verbose,
        log_tasks=options.log_tasks is LogTasks.ON,
    )
    stats = Stats()

    def make_collector() -> "Collector":
        from tickwheel.worker.metrics import metrics_collector

        return metrics_collector(stats)

    with sharing_metrics(page, driving, _log) as how:
        supervisor = Supervisor(config, options.processes, stats, how)
        ignore_sigusr1()
        handle_in_thread({signal.SIGTERM: supervisor.stop, signal.SIGINT: supervisor.stop})
        with serving_metrics(page, make_collector, _log, how, supervisor.health.find_problem):
            code = supervisor.run()
    raise typer.Exit(code)


def _check_texts(options: WorkerOptions, overrides: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a text that is not UTF-8: the processes receive their configuration as JSON."""
    texts = [("MODULE:APP", options.app), ("--selector", options.selector)]
    texts += [("--queue", name) for name in options.queue or ()]
    texts += [(f"--{option.replace('_', '-')}", text) for option, text in overrides.items()]
    for label, text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            # A URL may contain a password.
            value = "" if label == "--url" else f", not {preview(text)}"
            raise InvalidArgument(f"{label} must be valid Unicode text{value}") from error


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
