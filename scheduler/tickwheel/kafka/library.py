"""Imports the Kafka client library, an extra, when it is first needed. If it is missing, the error names the extra."""

import logging
import re
from collections.abc import Mapping
from itertools import chain
from types import ModuleType

from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model.sink_url import RELAY_TOPIC
from tickwheel.runtime.extras import describe_install
from tickwheel.runtime.log_throttle import LogThrottle

TOPIC = RELAY_TOPIC
# The records of sinks have headers with this prefix. Invariant: the records of the relay have none. So readers can
# distinguish a transition from the payload of a message, which may have the same key and the same format.
SINK_HEADERS = "tickwheel-"
# A broker: host or host:port, and before it perhaps a protocol, as Kafka's client reads it.
_BROKER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[^\s/@,\[\]]+\]|[^\s/:@,\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)
_PORT_MAX = 65_535

# The library's log. The library logs an unreachable broker several times a second, so its lines are throttled. Lines
# that differ only in the duration of an attempt count as the same line.
library_log = logging.getLogger("tickwheel.kafka")
_log_throttle = LogThrottle()
library_log.addFilter(lambda record: _log_throttle.should_log(record.getMessage().partition(" (after ")[0]))


def kafka_library() -> ModuleType:
    """Return the module ``confluent_kafka``. Raises TickwheelError if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise TickwheelError(
            f"Kafka requires the package confluent-kafka ({error}): {describe_install('kafka')}"
        ) from error
    return confluent_kafka


def build_settings(bootstrap: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings to reach the brokers: ``bootstrap``, as host:port,host:port, and ``overrides``.

    Raises InvalidArgument if ``bootstrap`` is not a string, is no list of brokers, or names a user, and if a text is
    not valid Unicode.
    """
    # The library accepts almost every text, and then never finds a broker.
    if not isinstance(bootstrap, str) or not all(map(_is_broker, bootstrap.split(","))):
        # The value is not quoted, because a password precedes an '@'. The library would log it as a part of the host.
        raise InvalidArgument(
            "bootstrap must name Kafka brokers as 'host:port', separated by ',', without a user and a password: these"
            " are settings of Kafka's client (sasl.username and sasl.password)"
        )
    settings = {"bootstrap.servers": bootstrap} | dict(overrides)
    try:
        for text in chain.from_iterable(settings.items()):
            str(text).encode()
    except UnicodeEncodeError as error:
        # The library would end the process.
        raise InvalidArgument("the settings of Kafka's client must be valid Unicode text") from error
    return settings


def _is_broker(text: str) -> bool:
    matched = _BROKER.fullmatch(text.strip())
    return matched is not None and (matched["port"] is None or 1 <= int(matched["port"]) <= _PORT_MAX)
