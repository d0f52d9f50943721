"""Opens sinks by their URLs, which `model/sink_url.py` validates. All kinds of sinks are registered here.

The registry opens only the topics that `model/served_topics.py` permits.
"""

import logging
from collections.abc import Callable, Sequence

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.served_topics import ALL_TOPICS, ServedTopics
from tickwheel.model.sink_url import split_sink_url, validate_sink_url
from tickwheel.sinks.kafka_sink import KafkaSink
from tickwheel.sinks.sink import Sink
from tickwheel.sinks.unconfirmed_buffer import RECORD_BYTES, UnconfirmedBuffer

_log = logging.getLogger("tickwheel.sinks")


class SinkRegistry:
    """The sinks of an event process. Thread-safe."""

    def __init__(self, namespace: str, producers: KafkaProducers, topics: Sequence[str] = ALL_TOPICS) -> None:
        """``topics`` are shell patterns. Only topics that match one of the patterns can be sinks."""
        self._namespace = namespace
        self._sink_producers = producers.sink_producers()
        # Half of the buffer that the shards share. The other half is left for the confirmed sinks.
        self.unconfirmed_buffer = UnconfirmedBuffer(self._sink_producers.buffer_bytes(RECORD_BYTES) // 2)
        self._topics = ServedTopics(producers.topic, topics)
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
        if refusal := self._topics.refusal(topic):
            raise InvalidArgument(refusal)
        return KafkaSink(self._sink_producers, self._namespace, topic)
