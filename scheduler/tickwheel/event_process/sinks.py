"""Opens sinks by their URLs (`sink_url.py` checks them): the one place that knows which there are."""

from collections.abc import Callable

from tickwheel.event_process.broker import Broker
from tickwheel.event_process.kafka_sink import KafkaSink
from tickwheel.event_process.sink import Sink
from tickwheel.sink_url import parts


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
