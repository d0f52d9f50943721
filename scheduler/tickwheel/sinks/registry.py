"""Opens sinks by their URLs, which `model/sink_url.py` validates. All kinds of sinks are registered here.

Who may configure a queue chooses the URL, but the event process writes with its own rights. So the registry opens no
topic of transitions, and only the topics that the operator permits.
"""

import logging
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.sink_url import split_sink_url, validate_sink_url
from tickwheel.sinks.kafka_sink import KafkaSink
from tickwheel.sinks.sink import Sink

ALL_TOPICS: Final = ("*",)

_log = logging.getLogger("tickwheel.sinks")


class SinkRegistry:
    """The sinks of an event process. Thread-safe."""

    def __init__(self, namespace: str, producers: KafkaProducers, topics: Sequence[str] = ALL_TOPICS) -> None:
        """``topics`` are shell patterns. Only topics that match one of the patterns can be sinks."""
        self._namespace = namespace
        self._sink_producers = producers.sink_producers()
        self._relay_topic = producers.topic
        self._topics = topics
        self._schemes: dict[str, Callable[[str], Sink]] = {"kafka": self._open_topic}
        # By queue, the sink that the log has reported as not served.
        self._reported: dict[str, str] = {}

    def sink(self, queue: str, url: str) -> Sink | None:
        """Return the sink of a queue. If this event process cannot serve the sink, log the reason, and return None.

        The URL may be invalid: a client of a later version, or a damaged key, may have set the URL. The log has one
        line for each queue until the URL changes.
        """
        try:
            scheme, name = split_sink_url(validate_sink_url(url))
            return self._schemes[scheme](name)
        except InvalidArgument as error:
            if self._reported.get(queue) != url:
                if len(self._reported) >= limits.QUEUES_MAX:
                    # A namespace has no more queues, so some of these were deleted.
                    self._reported.clear()
                self._reported[queue] = url
                _log.warning("messages of queue %s are not sent and stay Pending: %s", queue, error)
            return None

    def _open_topic(self, topic: str) -> Sink:
        if topic == self._relay_topic:
            raise InvalidArgument(f"the topic {topic} of the sink is the topic of the transitions (--topic)")
        if not any(fnmatchcase(topic, pattern) for pattern in self._topics):
            raise InvalidArgument(
                f"no pattern of --sink-topics permits the topic {topic} of the sink: {', '.join(self._topics)}"
            )
        return KafkaSink(self._sink_producers, self._namespace, topic)
