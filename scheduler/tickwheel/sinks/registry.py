"""Opens sinks by their URLs (`sink_url.py` checks them): the one place that knows which there are."""

from collections.abc import Callable

from tickwheel.kafka.producer import Broker
from tickwheel.model.sink_url import parts
from tickwheel.sinks.kafka_sink import KafkaSink
from tickwheel.sinks.sink import Sink


class Sinks:
    """The sinks of an event process."""

    def __init__(self, namespace: str, broker: Broker) -> None:
        producer = broker.for_sinks()
        self._schemes: dict[str, Callable[[str], Sink]] = {
            "kafka": lambda topic: KafkaSink(producer, namespace, topic),
        }

    def sink(self, url: str) -> Sink | None:
        """The sink of a URL; None where only a newer release knows its kind."""
        scheme, name = parts(url)
        opens = self._schemes.get(scheme)
        return None if opens is None else opens(name)
