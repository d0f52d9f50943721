"""An event process for a namespace, with its queues looked up at home; alone or as a program's child.

TICKWHEEL_URL=… python -m tickwheel.driving --namespace NAME (--lock FILE | --election zk://…) [--data-dir DIR]
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

from tickwheel.driver.fenced_shard import Shard
from tickwheel.driver.server_clock import monotonic_ms
from tickwheel.driver.stats import WheelStats
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.event_process import Election, EventProcess, LockFileElection
from tickwheel.event_process.queue_directory import HomeQueues
from tickwheel.event_process.shard_loop import Connect
from tickwheel.event_process.sidecar import Companion, StartCompanion
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import Broker
from tickwheel.operations.context import RELAYED, Core
from tickwheel.operations.namespace import identity, open_namespace
from tickwheel.redis import url as urls
from tickwheel.redis.blocking_executor import SyncIO
from tickwheel.redis.pools import ServerPools
from tickwheel.relay.relay import Relay
from tickwheel.runtime.signals import hear
from tickwheel.sinks.forwarder import HandOff
from tickwheel.sinks.registry import Sinks
from tickwheel.storage.keys import shard_key

_HOME_S = 5.0
# What the world does to an event process: a full disk, a server that is gone. Anything else is a mistake of ours, whose
# traceback is wanted.
_FROM_OUTSIDE = (TickwheelError, RedisError, OSError)

_log = logging.getLogger("tickwheel.driving")


def event_process(
    url: str,
    namespace: str,
    election: Path | ZooKeeperUrl,
    revive: Callable[[], None] | None = None,
    clock: str = "_clock",
    broker: Broker | None = None,
    replicas: int = 0,
    *,
    relays: bool = True,
) -> tuple[EventProcess, SyncIO]:
    """An event process for all shards of a namespace, ready to run, and the connection it looks queues up with.

    ``election`` is a lock file, for one host, or where ZooKeeper is. ``clock`` is how scripts read the time: another
    than the server's in tests only. Events are relayed to ``broker`` once ``replicas`` have them, unless it ``relays``
    nothing; raises InvalidArgument where the namespace does not keep its history for a relay. Due messages of queues
    with a sink are handed to it in any case.
    """
    core = Core(namespace, clock=clock)
    io = SyncIO(ServerPools(url), urls.without_password(url), _HOME_S, revive=revive)
    io.run(open_namespace(core, None))

    def connect(shard: int) -> "Redis":
        if revive is not None:
            revive()
        return io.connect(shard, shard_key(namespace, shard, "clock"))

    queues = HomeQueues(core, io, has_broker=broker is not None)
    queues.sinks(monotonic_ms())

    companions: list[StartCompanion] = []
    if broker is not None:
        companions.append(_hand_offs(connect, core, io, queues, broker))
    if broker is not None and relays:
        threading.Thread(target=broker.look, name="tickwheel-topic", daemon=True).start()
        companions.append(_relays(connect, core, queues, broker, replicas))
    elif core.history >= RELAYED:
        _log.warning(
            "namespace %s keeps its events until they are relayed, and this event process relays nothing", namespace
        )
    process = EventProcess(
        connect,
        namespace,
        range(core.shards),
        queues=queues,
        companions=companions,
        election=_election(election, core, io),
        clock_guard_ms=core.guard_ms,
        clock_fragment=clock,
    )
    return process, io


def _relays(connect: Connect, core: Core, queues: HomeQueues, broker: Broker, replicas: int) -> StartCompanion:
    """What starts the relay of a shard."""
    if core.history < RELAYED:
        raise InvalidArgument(
            f"namespace {core.namespace!r} does not keep its events until they are relayed: that is fixed when it is"
            " created, with history='relay'; for its sinks alone there is --no-relay"
        )

    def relay(shard: Shard, stats: WheelStats) -> Companion:
        work = Relay(
            connect,
            core.namespace,
            shard,
            queues=queues,
            broker=broker,
            stats=stats,
            history=core.history,
            replicas=replicas,
        )
        return Companion(shard, work)

    return relay


def _hand_offs(connect: Connect, core: Core, io: SyncIO, queues: HomeQueues, broker: Broker) -> StartCompanion:
    """What starts the hand-off of a shard to its sinks."""
    sinks = Sinks(core.namespace, broker)

    def hand_off(shard: Shard, stats: WheelStats) -> Companion:
        work = HandOff(connect, shard, core=core, io=io, home=queues, sinks=sinks, stats=stats)
        return Companion(shard, work)

    return hand_off


def _election(chosen: Path | ZooKeeperUrl, core: Core, io: SyncIO) -> Election:
    if isinstance(chosen, Path):
        return LockFileElection(chosen)
    try:
        from tickwheel.election.zookeeper import ZooKeeperElection
    except ModuleNotFoundError as error:
        raise TickwheelError(f"an election on ZooKeeper needs {error.name}: install tickwheel[zookeeper]") from error
    return ZooKeeperElection(chosen, core.namespace, core.shards, io.run(identity(core)))


def drive(
    url: str,
    namespace: str,
    election: Path | ZooKeeperUrl,
    data_dir: Path | None,
    until_eof: bool,
    clock: str = "_clock",
    broker: Broker | None = None,
) -> None:
    """Run an event process until SIGTERM or SIGINT, or until standard input ends.

    ``clock`` and ``broker`` as for `event_process`.
    """
    server = EmbeddedServer(data_dir) if data_dir is not None else None
    if server is not None:
        server.open()
    revive = server.ensure_running if server is not None else None
    process, io = event_process(url, namespace, election, revive, clock, broker)
    obey_signals(process)
    if until_eof:
        threading.Thread(target=_stop_at_eof, args=(process,), daemon=True).start()
    try:
        process.run()
    finally:
        io.close()
        if broker is not None:
            broker.close()
        if server is not None:
            server.close()


def obey_signals(process: EventProcess) -> None:
    """SIGTERM and SIGINT stop it; by SIGUSR1 an operator accepts a server's clock that stepped (docs/operations.md)."""
    hear((signal.SIGTERM, signal.SIGINT), process.stop)
    hear((signal.SIGUSR1,), process.accept_clock)


def _stop_at_eof(process: EventProcess) -> None:
    # The program that started this one has ended, however it ended: its end of the pipe is closed. Not by sys.stdin,
    # whose lock, held by this thread, would abort an interpreter that ends for another reason.
    while os.read(0, 1024):
        pass
    process.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--namespace", required=True)
    election = parser.add_mutually_exclusive_group(required=True)
    election.add_argument("--lock", type=Path, dest="election")
    election.add_argument("--election", type=ZooKeeperUrl.parse)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--kafka")
    parser.add_argument("--topic", default=TOPIC)
    given = parser.parse_args()
    handler = logging.StreamHandler()
    handler.addFilter(_is_told_only_here)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", handlers=[handler]
    )
    try:
        broker = None if given.kafka is None else Broker(given.kafka, given.topic)
        url = os.environ[urls.VARIABLE]
        drive(url, given.namespace, given.election, given.data_dir, given.until_eof, broker=broker)
    except _FROM_OUTSIDE as error:
        _log.error("the event process of namespace %s cannot go on: %s", given.namespace, error)
        sys.exit(1)


def _is_told_only_here(record: logging.LogRecord) -> bool:
    """Not what ended a shard's loop from outside: it ends the process, and is told then, in one line."""
    return not (record.exc_info and isinstance(record.exc_info[1], _FROM_OUTSIDE))


if __name__ == "__main__":
    main()
