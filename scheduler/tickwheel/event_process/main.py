"""An event process for a namespace, with its queues looked up at home; alone or as a program's child.

TICKWHEEL_URL=… python -m tickwheel.event_process --namespace NAME (--lock FILE | --election zk://…) [--data-dir DIR]
    [--until-eof] [--kafka HOST:PORT [--topic TOPIC]]
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.event_process import Election, EventProcess, LockFileElection
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.event_process.shard_loop import Connect
from tickwheel.event_process.sidecar import Sidecar, StartSidecar
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.namespace import ensure_namespace_id, open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.url import VARIABLE, redact
from tickwheel.relay.relay import Relay
from tickwheel.runtime.signals import handle_in_thread
from tickwheel.runtime.time import monotonic_ms
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.storage.keys import shard_key

_CALL_TIMEOUT_S = 5.0
# What the world does to an event process: a full disk, a server that is gone. Anything else is a mistake of ours, whose
# traceback is wanted.
OPERATIONAL_ERRORS = (TickwheelError, RedisError, OSError)

_log = logging.getLogger("tickwheel.driving")


def event_process(
    url: str,
    namespace: str,
    election: Path | ZooKeeperUrl,
    restart_embedded_server: Callable[[], None] | None = None,
    clock: str = "_clock",
    producers: KafkaProducers | None = None,
    replicas: int = 0,
    *,
    relays: bool = True,
) -> tuple[EventProcess, RedisExecutor]:
    """An event process for all shards of a namespace, ready to run, and the connection it looks queues up with.

    ``election`` is a lock file, for one host, or where ZooKeeper is. ``clock`` is how scripts read the time: another
    than the server's in tests only. Events are relayed to ``broker`` once ``replicas`` have them, unless it ``relays``
    nothing; raises InvalidArgument where the namespace does not keep its history for a relay. Due messages of queues
    with a sink are handed to it in any case.
    """
    context = NamespaceContext(namespace, clock=clock)
    io = RedisExecutor(
        ConnectionPools(url), redact(url), _CALL_TIMEOUT_S, restart_embedded_server=restart_embedded_server
    )
    io.run(open_namespace(context, NamespaceOptions()))

    def connect(shard: int) -> "Redis":
        if restart_embedded_server is not None:
            restart_embedded_server()
        return io.connect(shard, shard_key(namespace, shard, "clock"))

    queues = QueueDirectory(context, io, has_kafka=producers is not None)
    queues.queues_with_sinks(monotonic_ms())

    sidecars: list[StartSidecar] = []
    if producers is not None:
        sidecars.append(_forwarder_starter(connect, context, io, queues, producers))
    if producers is not None and relays:
        threading.Thread(target=producers.check_topic, name="tickwheel-topic", daemon=True).start()
        sidecars.append(_relay_starter(connect, context, queues, producers, replicas))
    elif context.history >= RELAYED:
        _log.warning(
            "namespace %s keeps its events until they are relayed, and this event process relays nothing", namespace
        )
    process = EventProcess(
        connect,
        namespace,
        range(context.shards),
        queues=queues,
        companions=sidecars,
        election=_election(election, context, io),
        clock_guard_ms=context.clock_guard_ms,
        clock_fragment=clock,
    )
    return process, io


def _relay_starter(
    connect: Connect, context: NamespaceContext, queues: QueueDirectory, producers: KafkaProducers, replicas: int
) -> StartSidecar:
    """What starts the relay of a shard."""
    if context.history < RELAYED:
        raise InvalidArgument(
            f"namespace {context.namespace!r} does not keep its events until they are relayed: that is fixed when it is"
            " created, with history='relay'; for its sinks alone there is --no-relay"
        )

    def start_relay(shard: FencedShard, stats: WheelStats) -> Sidecar:
        task = Relay(
            connect,
            context.namespace,
            shard,
            queues=queues,
            producers=producers,
            stats=stats,
            history=context.history,
            replicas=replicas,
        )
        return Sidecar(shard, task)

    return start_relay


def _forwarder_starter(
    connect: Connect, context: NamespaceContext, io: RedisExecutor, queues: QueueDirectory, producers: KafkaProducers
) -> StartSidecar:
    """What starts the hand-off of a shard to its sinks."""
    sinks = SinkRegistry(context.namespace, producers)

    def start_forwarder(shard: FencedShard, stats: WheelStats) -> Sidecar:
        task = SinkForwarder(connect, shard, context=context, io=io, queue_lookup=queues, sinks=sinks, stats=stats)
        return Sidecar(shard, task)

    return start_forwarder


def _election(chosen: Path | ZooKeeperUrl, context: NamespaceContext, io: RedisExecutor) -> Election:
    if isinstance(chosen, Path):
        return LockFileElection(chosen)
    try:
        from tickwheel.election.zookeeper import ZooKeeperElection
    except ModuleNotFoundError as error:
        raise TickwheelError(f"an election on ZooKeeper needs {error.name}: install tickwheel[zookeeper]") from error
    return ZooKeeperElection(chosen, context.namespace, context.shards, io.run(ensure_namespace_id(context)))


def run(
    url: str,
    namespace: str,
    election: Path | ZooKeeperUrl,
    data_dir: Path | None,
    until_eof: bool,
    clock: str = "_clock",
    producers: KafkaProducers | None = None,
) -> None:
    """Run an event process until SIGTERM or SIGINT, or until standard input ends.

    ``clock`` and ``broker`` as for `event_process`.
    """
    server = EmbeddedServer(data_dir) if data_dir is not None else None
    if server is not None:
        server.open()
    restart_embedded_server = server.ensure_running if server is not None else None
    process, io = event_process(url, namespace, election, restart_embedded_server, clock, producers)
    install_signal_handlers(process)
    if until_eof:
        threading.Thread(target=_stop_at_eof, args=(process,), daemon=True).start()
    try:
        process.run()
    finally:
        io.close()
        if producers is not None:
            producers.close()
        if server is not None:
            server.close()


def install_signal_handlers(process: EventProcess) -> None:
    """SIGTERM and SIGINT stop it; by SIGUSR1 an operator accepts a server's clock that stepped (docs/operations.md)."""
    handle_in_thread((signal.SIGTERM, signal.SIGINT), process.stop)
    handle_in_thread((signal.SIGUSR1,), process.accept_clock)


def _stop_at_eof(process: EventProcess) -> None:
    # The program that started this one has ended, however it ended: its end of the pipe is closed. Not by sys.stdin,
    # whose lock, held by this thread, would abort an interpreter that ends for another reason.
    while os.read(0, 1024):
        pass
    process.stop()


def main() -> None:
    parser = argparse.ArgumentParser("python -m tickwheel.event_process", description=__doc__.splitlines()[0])
    parser.add_argument("--namespace", required=True)
    election = parser.add_mutually_exclusive_group(required=True)
    election.add_argument("--lock", type=Path, dest="election")
    election.add_argument("--election", type=ZooKeeperUrl.parse)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--kafka")
    parser.add_argument("--topic", default=TOPIC)
    args = parser.parse_args()
    handler = logging.StreamHandler()
    handler.addFilter(_should_log)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", handlers=[handler]
    )
    try:
        producers = None if args.kafka is None else KafkaProducers(args.kafka, args.topic)
        url = os.environ[VARIABLE]
        run(url, args.namespace, args.election, args.data_dir, args.until_eof, producers=producers)
    except OPERATIONAL_ERRORS as error:
        _log.error("the event process of namespace %s cannot go on: %s", args.namespace, error)
        sys.exit(1)


def _should_log(record: logging.LogRecord) -> bool:
    """Not what ended a shard's loop from outside: it ends the process, and is told then, in one line."""
    return not (record.exc_info and isinstance(record.exc_info[1], OPERATIONAL_ERRORS))
