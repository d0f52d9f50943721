"""Run an event process for a namespace, as a program of its own or as the child of a client.

TICKWHEEL_URL=… python -m tickwheel.event_process --namespace NAME (--lock FILE | --election lease | --election zk://…)
    [--data-dir DIR] [--until-eof] [--existing] [--kafka HOST:PORT [--topic TOPIC] …]
TICKWHEEL_URL=… python -m tickwheel.event_process --namespace NAME --last-resort [--at-once] [--until-eof] [--json]
    [--replicas N] [--metrics-socket FILE] [--kafka HOST:PORT [--topic TOPIC] …]

With --until-eof, standard input is a pipe from the program that started this process (`ParentInput`).
"""

import argparse
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from pathlib import Path
from threading import Event
from typing import Final

from redis.exceptions import RedisError

from tickwheel.client.encryption import check_encryption
from tickwheel.election.lease_options import LEASE, LeaseOptions
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import NamespaceNotFound, TickwheelError
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import ElectionOptions, open_event_process
from tickwheel.event_process.child_metrics import serving_metrics
from tickwheel.event_process.driving_log import DrivingLog
from tickwheel.event_process.last_resort import run_last_resort
from tickwheel.event_process.parent_input import ParentInput
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.options import KafkaOptions
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.served_topics import ALL_TOPICS
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.signals import handle_in_thread, ignore_sigusr1

# Errors of the environment, such as a full disk or an unreachable server, are logged in one line. All others are bugs
# and are logged with a traceback.
OPERATIONAL_ERRORS = (TickwheelError, RedisError, OSError)

# The pause before the next search for a namespace that does not exist.
_MISSING_S: Final = 1.0

_log = logging.getLogger("tickwheel.driving")


def run(
    url: str,
    namespace: str,
    election: ElectionOptions,
    data_dir: Path | None,
    parent: ParentInput | None,
    clock: str = "_clock",
    producers: KafkaProducers | None = None,
    *,
    existing: bool = False,
) -> None:
    """Run an event process until SIGTERM or SIGINT, or until the input from the ``parent`` ends.

    With ``existing``, wait until the namespace exists, or the input ends. The other arguments are those of
    `open_event_process`.
    """

    def open_process() -> AbstractContextManager[EventProcess]:
        return open_event_process(
            *(url, namespace, election, data_dir), clock=clock, existing=existing, producers=producers
        )

    with ExitStack() as stack:
        if existing:
            ended = Event() if parent is None else parent.has_ended
            process = _await_namespace(namespace, open_process, stack, ended, is_embedded=data_dir is not None)
        else:
            process = stack.enter_context(open_process())
        if process is not None:
            run_until_stopped(process, parent)


def run_until_stopped(process: EventProcess, parent: ParentInput | None) -> None:
    """Run the event process until SIGTERM or SIGINT, or until the input from the ``parent`` ends."""
    install_signal_handlers(process)
    if parent is not None:
        parent.attach(process)
    process.run()


def run_last_resort_until_stopped(
    process: EventProcess, parent: ParentInput | None, namespace: str, metrics_socket: Path | None = None
) -> None:
    """Run like `run_until_stopped`, and log when the process begins to drive, and when it no longer drives.

    Serve the metrics of the process on the Unix socket ``metrics_socket``, unless it is None.
    """
    with (
        serving_metrics(process, namespace, metrics_socket),
        closing(DrivingLog(namespace, len(process.health()), process.led_epochs)) as driving_log,
    ):
        driving_log.start()
        run_until_stopped(process, parent)


def install_signal_handlers(process: EventProcess) -> None:
    """Stop on SIGTERM and SIGINT; on SIGUSR1, accept a server's clock that has stepped (docs/operations.md)."""
    handle_in_thread({signal.SIGTERM: process.stop, signal.SIGINT: process.stop, signal.SIGUSR1: process.accept_clock})


def _await_namespace(
    namespace: str,
    open_process: Callable[[], AbstractContextManager[EventProcess]],
    stack: ExitStack,
    ended: Event,
    *,
    is_embedded: bool,
) -> EventProcess | None:
    """Open the event process as soon as the namespace exists. Return None if ``ended`` is set before.

    If the server is embedded, try once even if ``ended`` is set already: if the program was killed, and no other
    program uses its server, then the event process stops the server when it closes it.
    """
    has_logged = False
    while is_embedded or not ended.is_set():
        try:
            return stack.enter_context(open_process())
        except NamespaceNotFound:
            if not has_logged and not ended.is_set():
                _log.warning("namespace %s does not exist: waiting until a program creates it", namespace)
            has_logged = True
        if ended.wait(_MISSING_S):
            break
    return None


def main() -> None:
    gc.freeze()
    parser = argparse.ArgumentParser("python -m tickwheel.event_process", description=__doc__.splitlines()[0])
    parser.add_argument("--namespace", required=True)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--lock", type=Path, dest="election")
    group.add_argument("--election", metavar="URL")
    group.add_argument("--last-resort", action="store_true")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--existing", action="store_true")
    parser.add_argument("--kafka")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--kafka-setting", action="append", default=[])
    parser.add_argument("--kafka-config", type=Path)
    parser.add_argument("--sink-topics", action="append", default=[])
    parser.add_argument("--replicas", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--metrics-socket", type=Path)
    args = parser.parse_args()
    # Until the event process handles the signal.
    ignore_sigusr1()
    raise_fd_limit()
    log_to_stderr(json=args.json, lowest=logging.WARNING).addFilter(_should_log)
    if args.last_resort and not args.at_once:
        # The child of a worker or a service. A client with `drive=True` writes no log of its own.
        _log.setLevel(logging.INFO)
    try:
        parent = None
        if args.until_eof:
            # First of all: the start may last long, and its program may end meanwhile.
            parent = ParentInput()
            parent.start()
        _run_with(args, parent)
    except OPERATIONAL_ERRORS as error:
        _log.error("the event process of namespace %s exits: %s", args.namespace, error)
        sys.exit(1)


def _run_with(args: argparse.Namespace, parent: ParentInput | None) -> None:
    """Run as the arguments of the program demand."""
    url = os.environ[VARIABLE]
    producers = None
    if args.kafka is not None:
        producers = KafkaOptions.make(args.kafka, args.topic, args.kafka_setting, config=args.kafka_config).producers()
    with nullcontext() if producers is None else closing(producers):
        check_encryption(url)
        if args.last_resort:
            run_last_resort(
                *(url, args.namespace, producers),
                lambda process: run_last_resort_until_stopped(process, parent, args.namespace, args.metrics_socket),
                replicas=args.replicas,
                sink_topics=args.sink_topics or ALL_TOPICS,
                waits_for_unclaimed=not args.at_once,
            )
            return
        # `argparse` would quote an invalid URL, which can contain a password.
        election = parse_election(args.election) if isinstance(args.election, str) else args.election
        run(
            *(url, args.namespace, election, args.data_dir, parent),
            producers=producers,
            existing=args.existing,
        )


def parse_election(text: str) -> ElectionOptions:
    """Return the options of an election: by lease, or the URL of ZooKeeper. Raises InvalidArgument."""
    return LeaseOptions() if text == LEASE else ZooKeeperUrl.parse(text)


def raise_fd_limit() -> None:
    """Raise this process's limit of open files to the highest that the system allows: each shard needs several."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have a lower limit than the one that they name.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _should_log(record: logging.LogRecord) -> bool:
    """Return whether a line belongs into the log of the program that started this process.

    At INFO, only the lines of `DrivingLog` do. A traceback of OPERATIONAL_ERRORS does not: `main` logs the error in one
    line when the process exits.
    """
    if record.levelno < logging.WARNING:
        return getattr(record, "fields", {}).get("event") in ("drives", "no longer drives")
    return not (record.exc_info and isinstance(record.exc_info[1], OPERATIONAL_ERRORS))
