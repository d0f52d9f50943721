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
from tickwheel.election.zookeeper_url import SESSION_TIMEOUT, ZooKeeperUrl
from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import InvalidArgument
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import event_process
from tickwheel.event_process.main import install_signal_handlers
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations.server_checks import parse_durability
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.url import default_lock
from tickwheel.runtime.log_format import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

commands = typer.Typer()
_log = logging.getLogger("tickwheel.events")


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
    lock: Annotated[
        Path | None,
        typer.Option(
            help="The lock file that elects; by default one for the server and namespace, in the data directory or"
            " the folder for temporary files."
        ),
    ] = None,
    election: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Elect on ZooKeeper, so that event processes of many hosts share the shards: zk://host:2181,host2/path"
            " (by default port 2181, path /tickwheel).",
        ),
    ] = None,
    session_timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="With --election: a process that was killed or cut off is followed after so long, 1s to 1m (default"
            " 4s).",
        ),
    ] = None,
    shards: Annotated[int | None, typer.Option(help="Shards of a new namespace; checked where it exists.")] = None,
    clock_guard: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="By how much a server's clock may step forward before promotion is held, 250ms to 1h: of a new"
            " namespace (default 1s); checked where it exists.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Kafka brokers, more of them behind commas: relay every transition there, and hand over what is for"
            " a queue's sink. A new namespace keeps its events until they are relayed.",
        ),
    ] = None,
    relay: Annotated[
        bool, typer.Option("--relay/--no-relay", help="With --no-relay, --kafka is for the sinks alone.")
    ] = True,
    topic: Annotated[str | None, typer.Option(help=f"Topic of the transitions (default {TOPIC}).")] = None,
    kafka_setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of librdkafka, as security.protocol=SSL; may be repeated."),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(help="Relay what is as durable as this alone: memory, fsync, or replica:N on N replicas."),
    ] = None,
    outbox_limit: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Events that a shard of a new namespace keeps for Kafka, in whole KiB (default 256 MiB); checked where"
            " it exists.",
        ),
    ] = None,
    outbox_full: Annotated[
        str | None,
        typer.Option(help="At that limit block refuses new messages, drop drops events; checked where it exists."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve the figures of every shard to Prometheus, under /metrics."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level.")] = False,
) -> None:
    """Run the event process: it turns the wheel, so that delays end and leases expire.

    With a lock file one drives a namespace, and more of them on this host stand by; with --election they share its
    shards, and follow each other. The log goes to stderr. SIGTERM and SIGINT end it
    cleanly; SIGUSR1 accepts the server's clock after a step that the clock guard has held.
    """
    if election is None and session_timeout is not None:
        raise InvalidArgument("--session-timeout is of the session with ZooKeeper: it needs --election")
    if election is not None and (lock is not None or target.url is None):
        raise InvalidArgument("--election needs --url, and not --lock: it is for a server that many hosts share")
    relays = kafka is not None and relay
    if kafka is None and (kafka_setting or not relay):
        raise InvalidArgument(f"{'--kafka-setting' if kafka_setting else '--no-relay'} is of Kafka: it needs --kafka")
    for name, value in (("--topic", topic), ("--outbox-limit", outbox_limit), ("--outbox-full", outbox_full)):
        if value is not None and not relays:
            without = "--kafka" if kafka is None else "that --no-relay is left out"
            raise InvalidArgument(f"{name} is of the events that are relayed to Kafka: it needs {without}")
    if lock is not None and not os.access(lock.parent, os.W_OK | os.X_OK):
        raise InvalidArgument(f"--lock {lock}: no file can be made in {lock.parent}")
    listen = None if metrics is None else metrics_address(metrics)
    zookeeper_url = ZooKeeperUrl.parse(election, session_timeout or SESSION_TIMEOUT) if election is not None else None
    log_to_stderr(json=target.json, verbose=verbose)
    if not verbose:
        # It tells of each attempt to connect; what comes of them is in our own log.
        logging.getLogger("tickwheel.kazoo").setLevel(logging.ERROR)
    # First: what is wrong here must leave no namespace behind, whose shards and history are fixed.
    producers = (
        None
        if kafka is None
        else KafkaProducers(kafka, TOPIC if topic is None else topic, _settings(kafka_setting or []))
    )
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
        ),
    ):
        server = EmbeddedServer(target.data_dir) if target.url is None else None
        url = server.url if server is not None else target.url or ""
        namespace = target.namespace or "tw"
        if lock is None:
            lock = (
                server.data_dir / f"event-process-{namespace}.lock"
                if server is not None
                else default_lock(url, namespace)
            )
        if server is not None:
            server.open()
        try:
            replicas = 0 if durability is None else parse_durability(durability).replicas
            process_args = event_process(
                url,
                namespace,
                zookeeper_url or lock,
                server.ensure_running if server is not None else None,
                producers=producers,
                replicas=replicas,
                relays=relays,
            )
            _run(*process_args, namespace, listen)
        finally:
            if server is not None:
                server.close()


def _settings(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidArgument(f"a setting of Kafka's client is NAME=VALUE, not {name!r:.80}")
    return {name: value for name, _, value in pairs}


def _run(process: EventProcess, io: RedisExecutor, namespace: str, metrics: tuple[str, int] | None) -> None:
    install_signal_handlers(process)
    shards = len(process.health())
    _log.info("process %d stands for election: namespace %s, shards 0 to %d", os.getpid(), namespace, shards - 1)

    def make_collector() -> "Collector":
        from tickwheel.event_process.metrics import ShardMetrics

        return ShardMetrics(namespace, process.health)

    with closing(io), serving_metrics(metrics, make_collector, _log):
        process.run()
    _log.info("ended")
