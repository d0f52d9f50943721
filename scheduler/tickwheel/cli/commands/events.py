"""`tickwheel events`: runs an event process, for a server that several programs share."""

import logging
import os
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tickwheel.cli.command import command
from tickwheel.cli.kafka_options import KafkaConfig, KafkaSetting, SinkTopics, Topic, require_kafka
from tickwheel.cli.metrics_option import Insecure, metrics_address, serving_metrics
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.election.lease_options import LEASE, SESSION_TIMEOUT, LeaseOptions
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.embedded.socket_owner import find_data_dir
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.options import KafkaOptions
from tickwheel.kafka.settings import warn_about_secrets
from tickwheel.redis.url import is_cluster_url
from tickwheel.runtime.log_format import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tickwheel.event_process import EventProcess

_log = logging.getLogger("tickwheel.events")
# The health check reports a loop that has worked for this time without a wait. Longer than the default lease, after
# which an election by lease lets another process have the shard.
_HANGING_MS: Final = 10_000.0


_Lock = Annotated[
    Path | None,
    typer.Option(
        help="Lock file of the election, for a data directory or a Redis Cluster. Default: a file for this server and"
        " namespace, in the data directory or in the folder tickwheel/locks of your state (~/.local/state). Deprecated"
        " for other servers: without the option, event processes on any number of hosts elect leaders by lease."
    ),
]
_Election = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Event processes on many hosts share the shards: lease needs nothing but the Redis server, and is the"
        " default of redis://, rediss:// and unix://; zk://host:2181,host2/path elects leaders with ZooKeeper (default"
        " port 2181, path /tickwheel).",
    ),
]
_SessionTimeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_duration),
        metavar="DURATION",
        help="Without lock files: time until others take over the shards of a failed process, 1s to 1m (default 4s).",
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
    typer.Option(
        metavar="HOST:PORT",
        help="Serve Prometheus metrics of all shards under /metrics, and a health check under /healthz.",
    ),
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level.")]


@command(
    "events",
    "tickwheel events --url redis://localhost:6379",
    "tickwheel events --data-dir ./data &",
    "tickwheel events --url redis+cluster://redis:6379 --election lease",
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
    topic: Topic = None,
    sink_topics: SinkTopics = None,
    kafka_setting: KafkaSetting = None,
    kafka_config: KafkaConfig = None,
    durability: _Durability = None,
    outbox_limit: _OutboxLimit = None,
    outbox_full: _OutboxFull = None,
    metrics: _Metrics = None,
    insecure: Insecure = False,
    verbose: _Verbose = False,
) -> None:
    """Run an event process, which drives the wheel: it makes due messages deliverable, and ends leases.

    Event processes on any number of hosts share the shards of a server, and take over from each other. In a data
    directory, and without --election in a Redis Cluster, one process of this host drives the namespace (lock file), and
    others stand by. On one Redis server, workers and services drive while no event process runs.

    The log goes to stderr. SIGTERM and SIGINT end the process cleanly. If the namespace is gone, because the server has
    lost its data, the process ends with exit code 1. If the server's clock has jumped ahead, the process makes no
    message deliverable until the clock is right, or until SIGUSR1 makes the process accept the clock.
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
    _begin_log(target, lock, kafka_setting, verbose=verbose)
    # Invalid options of Kafka create no namespace: its shards and its history cannot be changed afterwards.
    options = None if kafka is None else KafkaOptions.make(kafka, topic, kafka_setting, config=kafka_config)
    producers = None if options is None else options.producers()
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
            chosen or lock or settings.election,
            settings.data_dir,
            context=admin.context,
            producers=producers,
            replicas=settings.durability.replicas,
            relays=relays,
            sink_topics=sink_topics or ["*"],
        ) as process:
            _run(process, settings.namespace, listen)


def _begin_log(target: Target, lock: Path | None, kafka_setting: list[str] | None, *, verbose: bool) -> None:
    log_to_stderr(json=target.json, verbose=verbose)
    warn_about_secrets(kafka_setting or (), _log)
    if not verbose:
        # kazoo, the ZooKeeper client, logs every attempt to connect. Our own log has the outcome of the attempts.
        logging.getLogger("tickwheel.kazoo").setLevel(logging.ERROR)
    if lock is not None and _has_leases(target):
        _log.warning(
            "--lock is deprecated for this server: without the option, event processes on any number of hosts share the"
            " shards. The next event process without --lock takes the shards over"
        )


def _has_leases(target: Target) -> bool:
    """Whether the event processes of the server elect leaders by lease, unless an option chooses another election."""
    return target.url is not None and not is_cluster_url(target.url)


def _check_election(
    target: Target, lock: Path | None, election: str | None, session_timeout: timedelta | None
) -> LeaseOptions | ZooKeeperUrl | None:
    """Return the options of the election, or None if the election uses a lock file. Raises InvalidArgument."""
    if election is None and lock is None and _has_leases(target):
        election = LEASE
    if election == LEASE and target.url is not None and (data_dir := find_data_dir(target.url)) is not None:
        raise InvalidArgument(
            f"--url names the socket of the embedded server of a data directory, whose event processes have lock"
            f" files: use --data-dir {data_dir}"
        )
    if election is None and session_timeout is not None:
        raise InvalidArgument(
            "--session-timeout has no effect with lock files: leave it out"
            + (", or leave --lock out" if lock is not None and _has_leases(target) else "")
            + (", or set --election" if lock is None and target.url is not None else "")
        )
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
    require_kafka(kafka, {**kafka_options, "--no-relay": not relay})
    for name, value in relay_options.items():
        if value is not None and (kafka is None or not relay):
            missing = "needs --kafka" if kafka is None else "excludes --no-relay"
            raise InvalidArgument(f"{name} is for the events that are relayed to Kafka: it {missing}")


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

    def find_problem() -> str:
        hanging = process.hanging_shards(_HANGING_MS)
        return f"the loop of shard {hanging[0]} hangs (shards: {len(hanging)} of {shards})" if hanging else ""

    with (
        serving_metrics(metrics, make_collector, _log, find_problem=find_problem),
        nullcontext() if metrics is None else reader.running(),
    ):
        process.run()
    _log.info("ended")
