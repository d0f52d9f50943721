"""The Kafka client library, which is an extra: imported when it is needed, and its absence is said in plain words."""

import logging
from collections.abc import Mapping
from types import ModuleType

from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.runtime.log_throttle import LogThrottle

TOPIC = "tickwheel.transitions"


class _ThrottleFilter(logging.Filter):
    """A broker that is away is told of at each attempt to connect, several times a second: here once in a while.

    Of two lines that differ in how long an attempt took one is told.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        return self._throttle.should_log(record.getMessage().partition(" (after ")[0])


# What the library says.
library_log = logging.getLogger("tickwheel.kafka")
library_log.addFilter(_ThrottleFilter())


def kafka_library() -> ModuleType:
    """The module ``confluent_kafka``. Raises TickwheelError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise TickwheelError(
            f"Kafka needs the package confluent-kafka ({error}): pip install 'tickwheel[kafka]'"
        ) from error
    return confluent_kafka


def build_settings(bootstrap: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """How to reach the brokers: ``host:port``, more of them behind commas, and librdkafka's own settings."""
    if not isinstance(bootstrap, str) or not bootstrap.strip():
        raise InvalidArgument(f"bootstrap must name Kafka brokers as 'host:port', not {bootstrap!r:.80}")
    return {"bootstrap.servers": bootstrap} | dict(overrides)
