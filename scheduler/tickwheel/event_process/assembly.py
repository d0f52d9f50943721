"""Builds an event process: driver, election, relay and sinks of all shards of a namespace."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.election.lease_member import CALLS_PER_LEASE
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.event_process import Election, EventProcess, LockFileElection
from tickwheel.event_process.lease_election import LeaseElection
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.event_process.queue_metrics_reader import QueueMetricsReader
from tickwheel.event_process.shard_loop import Connect
from tickwheel.event_process.sidecar import Sidecar, StartSidecar
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.served_topics import ALL_TOPICS
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.namespace import ensure_namespace_id, open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.server_info import find_vulnerabilities
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.url import redact
from tickwheel.relay.relay import Relay
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.time import monotonic_ms
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.storage.keys import shard_key

_CALL_TIMEOUT_S = 5.0
ElectionOptions = Path | LeaseOptions | ZooKeeperUrl

_log = logging.getLogger("tickwheel.driving")


@contextmanager
def open_event_process(
    url: str | None,
    namespace: str,
    election: ElectionOptions,
    data_dir: Path | None = None,
    *,
    context: NamespaceContext | None = None,
    clock: str = "_clock",
    existing: bool = False,
    producers: KafkaProducers | None = None,
    replicas: int = 0,
    relays: bool = True,
    sink_topics: Sequence[str] = ALL_TOPICS,
) -> Iterator[EventProcess]:
    """Build an event process for all shards of a namespace, and close its connections at the end of the block.

    ``election`` is a lock file, for one host, or the options of an election by lease, or the URL of ZooKeeper.

    If ``data_dir`` is set, the event process keeps
    the embedded server of this directory running, and uses this server; ``url`` is then its URL or None. ``context`` is
    the open namespace, if the caller has opened the namespace already. With ``existing``, a missing namespace is not
    created: NamespaceNotFound is raised. ``clock`` is the Lua fragment with which scripts
    read the time; only tests change it.

    ``producers`` send due messages of queues with a sink, if one of the shell patterns ``sink_topics`` matches the
    topic. If ``relays`` is true, they also send the events, each after ``replicas`` replicas have received it. Raises
    InvalidArgument if events should be relayed and the namespace does not keep its history for a relay.
    """
    with ExitStack() as stack:
        restart_embedded_server = None
        if data_dir is not None:
            server = stack.enter_context(EmbeddedServer(data_dir))
            restart_embedded_server = server.ensure_running
            url = url or server.url
        assert url is not None
        servers = ConnectionPools(url, is_embedded=data_dir is not None)
        io = DriverExecutor(servers, redact(url), _CALL_TIMEOUT_S, restart_embedded_server=restart_embedded_server)
        stack.callback(io.close)
        if context is None:
            context = NamespaceContext(namespace, clock=clock)
            io.run(open_namespace(context, NamespaceOptions(existing=existing)))
        for warning in io.run(find_vulnerabilities()):
            _log.warning("%s", warning)
        if isinstance(election, LeaseOptions):
            # A call that hangs must not take longer than the time between two calls of the election.
            timeout_s = election.session_timeout_s / CALLS_PER_LEASE
            election_io = DriverExecutor(ConnectionPools(url, timeout_s), redact(url), timeout_s)
            stack.callback(election_io.close)
            chosen: Election = _lease_election(election, context, election_io)
        else:
            chosen = _election(election, context, io, is_embedded=data_dir is not None)
        yield _assemble(context, io, chosen, restart_embedded_server, producers, replicas, relays, sink_topics)


def _assemble(
    context: NamespaceContext,
    io: DriverExecutor,
    election: Election,
    restart_embedded_server: Callable[[], None] | None,
    producers: KafkaProducers | None,
    replicas: int,
    relays: bool,
    sink_topics: Sequence[str],
) -> EventProcess:
    def connect(shard: int) -> "Redis":
        if restart_embedded_server is not None:
            restart_embedded_server()
        return io.connect(shard, shard_key(context.namespace, shard, "clock"))

    queues = QueueDirectory(context, io, has_kafka=producers is not None)
    queues.queues_with_sinks(monotonic_ms())

    sidecars: list[StartSidecar] = []
    if producers is not None:
        sinks = SinkRegistry(context.namespace, producers, sink_topics)
        sidecars.append(_forwarder_starter(connect, context, io, queues, sinks))
    if producers is not None and relays:
        threading.Thread(target=producers.check_topic, name="tickwheel-topic", daemon=True).start()
        sidecars.append(_relay_starter(connect, context, queues, producers, replicas))
    elif context.history >= RELAYED:
        _log.warning(
            "namespace %s keeps its events until they are relayed, but this event process does not relay them: the"
            " outbox fills up unless an event process that relays events leads the shards",
            context.namespace,
        )
    process = EventProcess(
        connect,
        context.namespace,
        range(context.shards),
        queues=queues,
        companions=sidecars,
        election=election,
        clock_guard_ms=context.clock_guard_ms,
        clock_fragment=context.clock,
    )
    process.queue_metrics = QueueMetricsReader(context, io.run, process.led_epochs)
    return process


def _relay_starter(
    connect: Connect, context: NamespaceContext, queues: QueueDirectory, producers: KafkaProducers, replicas: int
) -> StartSidecar:
    """Return a function that starts the relay of a shard."""
    if context.history < RELAYED:
        raise InvalidArgument(
            f"namespace {context.namespace!r} does not keep its events for a relay: a namespace must be created with"
            " history='relay', which cannot be changed later. To serve only its sinks, use --no-relay"
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
    connect: Connect, context: NamespaceContext, io: DriverExecutor, queues: QueueDirectory, sinks: SinkRegistry
) -> StartSidecar:
    """Return a function that starts the forwarder of a shard's sinks."""

    def start_forwarder(shard: FencedShard, stats: WheelStats) -> Sidecar:
        return Sidecar(
            shard,
            SinkForwarder(connect, shard, context=context, io=io, queue_lookup=queues, sinks=sinks, stats=stats),
        )

    return start_forwarder


def _lease_election(options: LeaseOptions, context: NamespaceContext, io: DriverExecutor) -> LeaseElection:
    def connect(shard: int) -> "Redis":
        return io.connect(shard, shard_key(context.namespace, shard, "clock"))

    return LeaseElection(
        connect,
        context.namespace,
        context.shards,
        rank=options.rank,
        lease_ms=1000 * options.session_timeout_s,
        waits_for_unclaimed=options.waits_for_unclaimed,
        is_cluster=io.is_cluster,
    )


def _election(
    chosen: Path | ZooKeeperUrl, context: NamespaceContext, io: DriverExecutor, *, is_embedded: bool
) -> Election:
    if isinstance(chosen, Path):
        return LockFileElection(chosen, is_embedded=is_embedded)
    try:
        from tickwheel.election.zookeeper import ZooKeeperElection
    except ModuleNotFoundError as error:
        raise TickwheelError(f"an election on ZooKeeper needs {error.name}: {describe_install('zookeeper')}") from error
    return ZooKeeperElection(chosen, context.namespace, context.shards, io.run(ensure_namespace_id(context)))
