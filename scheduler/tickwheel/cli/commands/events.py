"""`tickwheel events`: runs an event process, for a server that several programs share."""

import logging
import os
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.kafka_settings import read_kafka_settings
from tickwheel.cli.metrics_option import Insecure, metrics_address, serving_metrics
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.election.lease_options import LEASE, SESSION_TIMEOUT, LeaseOptions
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import TOPIC
from tickwheel.runtime.log_format import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.event_process import EventProcess
    from tickwheel.kafka.producer import KafkaProducers

_log = logging.getLogger("tickwheel.events")


_Lock = Annotated[
    Path | None,
    typer.Option(
        help="Lock file of the election. Default: a file for this server and namespace, in the data directory or in the"
        " folder tickwheel/locks of your state (~/.local/state)."
    ),
]
_Election = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Event processes on many hosts share the shards: zk://host:2181,host2/path elects leaders with ZooKeeper"
        " (default port 2181, path /tickwheel), and lease needs nothing but the Redis server.",
    ),
]
_SessionTimeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_duration),
        metavar="DURATION",
        help="With --election: time until others take over the shards of a failed process, 1s to 1m (default 4s).",
    ),
]
_Shards = Annotated[
    int | None,
    typer.Option(help="Number of shards of a new namespace. An existing namespace must have the same number."),
]
_ClockGuard = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_duration),
        metavar="DURATION",
        help="Stop promotion if a server's clock jumps ahead by more than this, 250ms to 1h (default for a new"
        " namespace: 1s). An existing namespace must have the same value.",
    ),
]
_Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Kafka brokers, separated by commas. The process relays every transition to Kafka, and delivers the"
        " messages of queues with a sink. A new namespace keeps its events until they are relayed.",
    ),
]
_Relay = Annotated[bool, typer.Option("--relay/--no-relay", help="With --no-relay, use --kafka only for sinks.")]
_Topic = Annotated[str | None, typer.Option(help=f"Topic of the transitions (default {TOPIC}).")]
_SinkTopics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Deliver messages only to sinks whose topic matches this shell pattern (default *); may be repeated.",
    ),
]
_KafkaSetting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Setting of Kafka's client, like security.protocol=SSL; may be repeated."),
]
_KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with settings of Kafka's client, one NAME=VALUE on each line: for passwords, which every user of the"
        " host could read in --kafka-setting.",
    ),
]
_Durability = Annotated[
    str | None,
    typer.Option(help="Relay only events that are this durable: memory, fsync, or replica:N for N replicas."),
]
_OutboxLimit = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="Maximum size of the events that a shard of a new namespace keeps for Kafka (default 256 MiB), rounded"
        " down to whole KiB. An existing namespace must have the same limit.",
    ),
]
_OutboxFull = Annotated[
    str | None,
    typer.Option(
        help="What happens at the --outbox-limit: with 'block', new messages are rejected; with 'drop', new events are"
        " discarded. An existing namespace must have the same setting."
    ),
]
_Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics of all shards under /metrics."),
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level.")]


@command(
    "events",
    "tickwheel events --url redis://localhost:6379",
    "tickwheel events --data-dir ./data &",
    "tickwheel events --url redis://redis:6379 --election lease",
    "tickwheel events --url redis+cluster://redis:6379 --election zk://zk1,zk2,zk3",
)
def events(
    target: Target,
    lock: _Lock = None,
    election: _Election = None,
    session_timeout: _SessionTimeout = None,
    shards: _Shards = None,
    clock_guard: _ClockGuard = None,
    kafka: _Kafka = None,
    relay: _Relay = True,
    topic: _Topic = None,
    sink_topics: _SinkTopics = None,
    kafka_setting: _KafkaSetting = None,
    kafka_config: _KafkaConfig = None,
    durability: _Durability = None,
    outbox_limit: _OutboxLimit = None,
    outbox_full: _OutboxFull = None,
    metrics: _Metrics = None,
    insecure: Insecure = False,
    verbose: _Verbose = False,
) -> None:
    """Run an event process. It drives the wheel: it makes delayed messages deliverable when they are due, and expires
    leases.

    With a lock file, one process on this host drives the namespace, and others stand by. With --election, processes
    share the shards and take over from each other. The log goes to stderr. SIGTERM and SIGINT end the process cleanly.
    If the namespace is gone, because the server has lost its data, the process ends with exit code 1.
    If the clock guard has stopped promotion, SIGUSR1 makes the process accept the server's clock.
    """
    from tickwheel.event_process.assembly import open_event_process

    relays = kafka is not None and relay
    chosen = _check_election(target, lock, election, session_timeout)
    _check_kafka_options(
        *(kafka, relay),
        {"--kafka-setting": kafka_setting, "--kafka-config": kafka_config, "--sink-topics": sink_topics},
        {"--topic": topic, "--outbox-limit": outbox_limit, "--outbox-full": outbox_full},
    )
    listen = metrics_address(metrics, insecure=insecure)
    log_to_stderr(json=target.json, verbose=verbose)
    if not verbose:
        # kazoo, the ZooKeeper client, logs every attempt to connect. Our own log has the outcome of the attempts.
        logging.getLogger("tickwheel.kazoo").setLevel(logging.ERROR)
    # Invalid options of Kafka create no namespace: its shards and its history cannot be changed afterwards.
    producers = None if kafka is None else _make_producers(kafka, topic, kafka_setting, kafka_config)
    # The client checks the server and opens the namespace. While the client is open, an embedded server keeps running.
    with (
        nullcontext() if producers is None else closing(producers),
        target.require_redis("events").open(
            durability=durability,
            shards=shards,
            clock_guard=clock_guard,
            history="relay" if relays else None,
            outbox_limit=outbox_limit,
            outbox_full=outbox_full,
        ) as tickwheel,
    ):
        admin = Admin(tickwheel)
        settings = admin.settings
        with open_event_process(
            settings.url,
            settings.namespace,
            chosen or lock or settings.election_lock,
            settings.data_dir,
            context=admin.context,
            producers=producers,
            replicas=settings.durability.replicas,
            relays=relays,
            sink_topics=sink_topics or ["*"],
        ) as process:
            _run(process, settings.namespace, listen)


def _check_election(
    target: Target, lock: Path | None, election: str | None, session_timeout: timedelta | None
) -> LeaseOptions | ZooKeeperUrl | None:
    """Return the options of the election, or None if the election uses a lock file. Raises InvalidArgument."""
    if election is None and session_timeout is not None:
        raise InvalidArgument("--session-timeout is for event processes on many hosts: it needs --election")
    if election is not None and (lock is not None or target.url is None):
        raise InvalidArgument("--election is for a server that many hosts share: it needs --url, and excludes --lock")
    if lock is not None and not os.access(lock.parent, os.W_OK | os.X_OK):
        raise InvalidArgument(f"--lock {lock}: cannot create files in {lock.parent}")
    if election is None:
        return None
    if election == LEASE:
        return LeaseOptions.checked(session_timeout or SESSION_TIMEOUT)
    return ZooKeeperUrl.parse(election, session_timeout or SESSION_TIMEOUT)


def _check_kafka_options(
    kafka: str | None,
    relay: bool,
    kafka_options: dict[str, list[str] | Path | None],
    relay_options: dict[str, str | int | None],
) -> None:
    """Raise InvalidArgument for an option that has no effect without another option."""
    if kafka is None:
        for name, is_used in {**kafka_options, "--no-relay": not relay}.items():
            if is_used:
                raise InvalidArgument(f"{name} is for Kafka: it needs --kafka")
    for name, value in relay_options.items():
        if value is not None and (kafka is None or not relay):
            missing = "needs --kafka" if kafka is None else "excludes --no-relay"
            raise InvalidArgument(f"{name} is for the events that are relayed to Kafka: it {missing}")


def _make_producers(
    kafka: str, topic: str | None, kafka_setting: list[str] | None, kafka_config: Path | None
) -> "KafkaProducers":
    from tickwheel.kafka.producer import KafkaProducers

    settings = read_kafka_settings(kafka_setting or [], kafka_config)
    return KafkaProducers(kafka, TOPIC if topic is None else topic, settings)


def _run(process: "EventProcess", namespace: str, metrics: tuple[str, int] | None) -> None:
    from tickwheel.event_process.main import install_signal_handlers

    install_signal_handlers(process)
    shards = len(process.health())
    _log.info("process %d takes part in the election: namespace %s, shards 0 to %d", os.getpid(), namespace, shards - 1)

    reader = process.queue_metrics
    assert reader is not None

    def make_collector() -> "Collector":
        from tickwheel.event_process.metrics import ShardMetrics

        return ShardMetrics(namespace, process.health, process.unreadable_nodes, reader.readings)

    with serving_metrics(metrics, make_collector, _log), nullcontext() if metrics is None else reader.running():
        process.run()
    _log.info("ended")
