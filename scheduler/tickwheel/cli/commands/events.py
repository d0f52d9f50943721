"""`tickwheel events`: the event process alone, for a server that programs share."""

import logging
import os
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.metrics_option import metrics_address, serving_metrics
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.election.zookeeper_url import SESSION_TIMEOUT, ZooKeeperUrl
from tickwheel.errors import InvalidArgument
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.event_process.main import install_signal_handlers
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.runtime.log_format import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

commands = typer.Typer()
_log = logging.getLogger("tickwheel.events")


_Lock = Annotated[
    Path | None,
    typer.Option(
        help="The lock file that elects; by default one for the server and namespace, in the data directory or"
        " the folder for temporary files."
    ),
]
_Election = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Elect on ZooKeeper, so that event processes of many hosts share the shards: zk://host:2181,host2/path"
        " (by default port 2181, path /tickwheel).",
    ),
]
_SessionTimeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_duration),
        metavar="DURATION",
        help="With --election: a process that was killed or cut off is followed after so long, 1s to 1m (default 4s).",
    ),
]
_Shards = Annotated[int | None, typer.Option(help="Shards of a new namespace; checked where it exists.")]
_ClockGuard = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_duration),
        metavar="DURATION",
        help="By how much a server's clock may step forward before promotion is held, 250ms to 1h: of a new"
        " namespace (default 1s); checked where it exists.",
    ),
]
_Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Kafka brokers, more of them behind commas: relay every transition there, and hand over what is for"
        " a queue's sink. A new namespace keeps its events until they are relayed.",
    ),
]
_Relay = Annotated[bool, typer.Option("--relay/--no-relay", help="With --no-relay, --kafka is for the sinks alone.")]
_Topic = Annotated[str | None, typer.Option(help=f"Topic of the transitions (default {TOPIC}).")]
_KafkaSetting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of librdkafka, as security.protocol=SSL; may be repeated."),
]
_Durability = Annotated[
    str | None,
    typer.Option(help="Relay what is as durable as this alone: memory, fsync, or replica:N on N replicas."),
]
_OutboxLimit = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="Events that a shard of a new namespace keeps for Kafka, in whole KiB (default 256 MiB); checked where"
        " it exists.",
    ),
]
_OutboxFull = Annotated[
    str | None,
    typer.Option(help="At that limit block refuses new messages, drop drops events; checked where it exists."),
]
_Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve the figures of every shard to Prometheus, under /metrics."),
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level.")]


@command(
    commands,
    "events",
    "tickwheel events --url redis://localhost:6379",
    "tickwheel events --data-dir ./data &",
    "tickwheel events --url redis://redis:6379 --election zk://zk1,zk2,zk3",
    panel="Processes",
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
    kafka_setting: _KafkaSetting = None,
    durability: _Durability = None,
    outbox_limit: _OutboxLimit = None,
    outbox_full: _OutboxFull = None,
    metrics: _Metrics = None,
    verbose: _Verbose = False,
) -> None:
    """Run the event process: it turns the wheel, so that delays end and leases expire.

    With a lock file one drives a namespace, and more of them on this host stand by; with --election they share its
    shards, and follow each other. The log goes to stderr. SIGTERM and SIGINT end it
    cleanly; SIGUSR1 accepts the server's clock after a step that the clock guard has held.
    """
    relays = kafka is not None and relay
    zookeeper_url = _check_election(target, lock, election, session_timeout)
    _check_kafka_options(
        *(kafka, relay, kafka_setting), {"--topic": topic, "--outbox-limit": outbox_limit, "--outbox-full": outbox_full}
    )
    listen = None if metrics is None else metrics_address(metrics)
    log_to_stderr(json=target.json, verbose=verbose)
    if not verbose:
        # It tells of each attempt to connect; what comes of them is in our own log.
        logging.getLogger("tickwheel.kazoo").setLevel(logging.ERROR)
    # First: what is wrong here must leave no namespace behind, whose shards and history are fixed.
    producers = None if kafka is None else _make_producers(kafka, topic, kafka_setting)
    # Checks the server and opens the namespace as every client does; with an embedded server keeps it running.
    with (
        nullcontext() if producers is None else closing(producers),
        target.require_redis("events").open(
            create=True,
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
            zookeeper_url or lock or settings.election_lock,
            settings.data_dir,
            context=admin.context,
            producers=producers,
            replicas=settings.durability.replicas,
            relays=relays,
        ) as process:
            _run(process, settings.namespace, listen)


def _check_election(
    target: Target, lock: Path | None, election: str | None, session_timeout: timedelta | None
) -> ZooKeeperUrl | None:
    """Return the URL of ZooKeeper; None if a lock file elects. Raises InvalidArgument."""
    if election is None and session_timeout is not None:
        raise InvalidArgument("--session-timeout is of the session with ZooKeeper: it needs --election")
    if election is not None and (lock is not None or target.url is None):
        raise InvalidArgument("--election needs --url, and not --lock: it is for a server that many hosts share")
    if lock is not None and not os.access(lock.parent, os.W_OK | os.X_OK):
        raise InvalidArgument(f"--lock {lock}: no file can be made in {lock.parent}")
    return None if election is None else ZooKeeperUrl.parse(election, session_timeout or SESSION_TIMEOUT)


def _check_kafka_options(
    kafka: str | None, relay: bool, kafka_setting: list[str] | None, relay_options: dict[str, str | int | None]
) -> None:
    """Raise InvalidArgument for an option that has no effect without others."""
    if kafka is None and (kafka_setting or not relay):
        raise InvalidArgument(f"{'--kafka-setting' if kafka_setting else '--no-relay'} is of Kafka: it needs --kafka")
    for name, value in relay_options.items():
        if value is not None and (kafka is None or not relay):
            without = "--kafka" if kafka is None else "that --no-relay is left out"
            raise InvalidArgument(f"{name} is of the events that are relayed to Kafka: it needs {without}")


def _make_producers(kafka: str, topic: str | None, kafka_setting: list[str] | None) -> KafkaProducers:
    return KafkaProducers(kafka, TOPIC if topic is None else topic, _settings(kafka_setting or []))


def _settings(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidArgument(f"a setting of Kafka's client is NAME=VALUE, not {name!r:.80}")
    return {name: value for name, _, value in pairs}


def _run(process: EventProcess, namespace: str, metrics: tuple[str, int] | None) -> None:
    install_signal_handlers(process)
    shards = len(process.health())
    _log.info("process %d stands for election: namespace %s, shards 0 to %d", os.getpid(), namespace, shards - 1)

    def make_collector() -> "Collector":
        from tickwheel.event_process.metrics import ShardMetrics

        return ShardMetrics(namespace, process.health)

    with serving_metrics(metrics, make_collector, _log):
        process.run()
    _log.info("ended")
