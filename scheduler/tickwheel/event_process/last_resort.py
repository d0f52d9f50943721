"""Drives a namespace as a last resort, until something speaks against it (`obstacle_watch`).

The program that started this process knows the same obstacles (`client.last_resort`), and logs them. So this process
ends with exit code 0 and without a word if it must not drive.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.election.lease_member import KIND
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lease_row import LAST_RESORT
from tickwheel.errors import NamespaceGone, NamespaceNotFound
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.event_process.obstacle_watch import ObstacleWatch
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.served_topics import ALL_TOPICS, ServedTopics
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.driving.obstacles import Obstacle, find_obstacle, find_sink
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.url import redact

_CALL_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("tickwheel.driving")


def run_last_resort(
    url: str,
    namespace: str,
    producers: KafkaProducers | None,
    run: Callable[[EventProcess], None],
    *,
    replicas: int = 0,
    sink_topics: Sequence[str] = ALL_TOPICS,
    waits_for_unclaimed: bool = True,
) -> None:
    """Drive by calling ``run`` with an event process. The event process is stopped if something speaks against it.

    ``producers`` relay events, each after ``replicas`` replicas have received it, and send messages to the sinks of the
    ``sink_topics``. Without ``waits_for_unclaimed``, the process claims shards that nobody has claimed yet at once.
    """
    io = DriverExecutor(ConnectionPools(url, _CALL_TIMEOUT_S), redact(url), _CALL_TIMEOUT_S)
    with closing(io):
        context = NamespaceContext(namespace)
        topics = None if producers is None else ServedTopics(producers.topic, sink_topics)

        def find() -> Obstacle | None:
            return io.run(find_obstacle(context, KIND, topics=topics, replicas=replicas))

        def find_sink_of(queues: Sequence[str]) -> Obstacle | None:
            return io.run(find_sink(context, queues, topics=topics))

        if find():
            return
        try:
            with (
                open_event_process(
                    url,
                    namespace,
                    LeaseOptions(rank=LAST_RESORT, waits_for_unclaimed=waits_for_unclaimed),
                    existing=True,
                    producers=producers,
                    relays=context.history >= RELAYED,
                    replicas=replicas,
                    sink_topics=sink_topics,
                ) as process,
                closing(
                    ObstacleWatch(
                        io,
                        namespace,
                        find=find,
                        find_sink=find_sink_of,
                        is_driving=lambda: bool(process.led_epochs()),
                        on_obstacle=process.stop,
                    )
                ) as watch,
            ):
                watch.start()
                run(process)
        except (NamespaceGone, NamespaceLost, NamespaceNotFound) as error:
            _log.info("%s", error)
