"""Run an event process for a namespace, as a program of its own or as the child of a client.

TICKWHEEL_URL=… python -m tickwheel.event_process --namespace NAME (--lock FILE | --election lease | --election zk://…)
    [--data-dir DIR] [--until-eof] [--existing] [--kafka HOST:PORT [--topic TOPIC]]
"""

import argparse
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from tickwheel.client.encryption import check_encryption
from tickwheel.election.lease_options import LEASE, LeaseOptions
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import NamespaceNotFound, TickwheelError
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import ElectionOptions, open_event_process
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.signals import handle_in_thread

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
    until_eof: bool,
    clock: str = "_clock",
    producers: KafkaProducers | None = None,
    *,
    existing: bool = False,
) -> None:
    """Run an event process until SIGTERM or SIGINT, or with ``until_eof`` until standard input ends.

    With ``existing``, wait until the namespace exists, or standard input ends. The other arguments are those of
    `open_event_process`. ``producers`` is closed at the end.
    """

    def open_process() -> AbstractContextManager[EventProcess]:
        return open_event_process(
            *(url, namespace, election, data_dir), clock=clock, existing=existing, producers=producers
        )

    with nullcontext() if producers is None else closing(producers), ExitStack() as stack:
        process = _await_namespace(namespace, open_process, stack) if existing else stack.enter_context(open_process())
        if process is None:
            return
        install_signal_handlers(process)
        if until_eof:
            threading.Thread(target=_stop_at_eof, args=(process,), daemon=True).start()
        process.run()


def install_signal_handlers(process: EventProcess) -> None:
    """Stop on SIGTERM and SIGINT; on SIGUSR1, accept a server's clock that has stepped (docs/operations.md)."""
    handle_in_thread({signal.SIGTERM: process.stop, signal.SIGINT: process.stop, signal.SIGUSR1: process.accept_clock})


def _stop_at_eof(process: EventProcess) -> None:
    # If the program that started this process ends, for any reason, its end of the pipe is closed. `sys.stdin` is not
    # used here: this thread would hold the lock of `sys.stdin` while it waits, and the interpreter would abort at exit.
    while os.read(0, 1024):
        pass
    process.stop()


def _await_namespace(
    namespace: str, open_process: Callable[[], AbstractContextManager[EventProcess]], stack: ExitStack
) -> EventProcess | None:
    """Open the event process as soon as the namespace exists. Return None if standard input ends before."""
    has_logged = False
    while True:
        try:
            return stack.enter_context(open_process())
        except NamespaceNotFound:
            if not has_logged:
                _log.warning("namespace %s does not exist: waiting until a program creates it", namespace)
            has_logged = True
        readable, _, _ = select.select([0], [], [], _MISSING_S)
        if readable and not os.read(0, 1024):
            return None


def main() -> None:
    parser = argparse.ArgumentParser("python -m tickwheel.event_process", description=__doc__.splitlines()[0])
    parser.add_argument("--namespace", required=True)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--lock", type=Path, dest="election")
    group.add_argument("--election", metavar="URL")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--existing", action="store_true")
    parser.add_argument("--kafka")
    parser.add_argument("--topic", default=TOPIC)
    args = parser.parse_args()
    log_to_stderr(lowest=logging.WARNING).addFilter(_should_log)
    try:
        producers = None if args.kafka is None else KafkaProducers(args.kafka, args.topic)
        # `argparse` would quote an invalid URL, which can contain a password.
        election = parse_election(args.election) if isinstance(args.election, str) else args.election
        url = os.environ[VARIABLE]
        check_encryption(url)
        run(
            *(url, args.namespace, election, args.data_dir, args.until_eof),
            producers=producers,
            existing=args.existing,
        )
    except OPERATIONAL_ERRORS as error:
        _log.error("the event process of namespace %s exits: %s", args.namespace, error)
        sys.exit(1)


def parse_election(text: str) -> ElectionOptions:
    """Return the options of an election: by lease, or the URL of ZooKeeper. Raises InvalidArgument."""
    return LeaseOptions() if text == LEASE else ZooKeeperUrl.parse(text)


def _should_log(record: logging.LogRecord) -> bool:
    """Return False for a traceback of OPERATIONAL_ERRORS: `main` logs the error in one line when the process exits."""
    return not (record.exc_info and isinstance(record.exc_info[1], OPERATIONAL_ERRORS))
