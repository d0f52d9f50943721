"""Opens sinks by their URLs, which `model/sink_url.py` validates. All kinds of sinks are registered here."""

from collections.abc import Callable

from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.sink_url import split_sink_url
from tickwheel.sinks.kafka_sink import KafkaSink
from tickwheel.sinks.sink import Sink


class SinkRegistry:
    """The sinks of an event process."""

    def __init__(self, namespace: str, producers: KafkaProducers) -> None:
        sink_producers = producers.sink_producers()
        self._schemes: dict[str, Callable[[str], Sink]] = {
            "kafka": lambda topic: KafkaSink(sink_producers, namespace, topic),
        }

    def sink(self, url: str) -> Sink | None:
        """Return the sink of a URL; None if this version does not know the scheme: a newer client has set the URL."""
        scheme, name = split_sink_url(url)
        open_sink = self._schemes.get(scheme)
        return None if open_sink is None else open_sink(name)
