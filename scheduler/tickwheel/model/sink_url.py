"""URLs of sinks. A sink receives the due messages of a queue; without a sink, workers receive them.

This module lists the URL schemes and checks URLs; `sinks/registry.py` opens the sinks. A new kind of sink needs one
line in each of the two modules.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview, preview_url, to_plain_str

# org.apache.kafka.common.internals.Topic
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# The default topic of the relays of all namespaces. A payload in this topic could pass for a transition.
RELAY_TOPIC: Final = "tickwheel.transitions"
TOPIC_NAMES: Final = "1 to 249 letters, digits, '.', '_' and '-'; the names '.' and '..' are not allowed"


def validate_sink_url(url: object) -> str:
    """Return the URL. Raises InvalidArgument if ``url`` is not the URL of a sink."""
    if not isinstance(url, str):
        raise InvalidArgument(f"sink must be a URL such as 'kafka://topic', not {preview_url(url)}")
    scheme, separator, name = url.partition("://")
    check = _SCHEMES.get(scheme)
    if not separator or check is None:
        known = " or ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise InvalidArgument(f"sink {preview_url(url)} is not supported: the url of a sink starts with {known}")
    check(url, name)
    return to_plain_str(url)


def split_sink_url(url: str) -> tuple[str, str]:
    """Return scheme and name of a validated URL."""
    scheme, _, name = url.partition("://")
    return scheme, name


def is_topic(name: object) -> bool:
    """Return whether ``name`` is a valid name of a Kafka topic."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _check_kafka(url: str, topic: str) -> None:
    if not is_topic(topic):
        # A URL of a broker can contain a password.
        shown = preview_url(url) if "@" in url or "?" in url else preview(url)
        raise InvalidArgument(
            f"sink {shown} must be kafka:// and the name of a topic: {TOPIC_NAMES}; the addresses of the brokers are an"
            " option of the event process (--kafka)"
        )
    if topic == RELAY_TOPIC:
        raise InvalidArgument(
            f"sink {preview(url)} is not allowed: event processes publish the transitions of messages to the topic"
            f" {RELAY_TOPIC}; name another topic"
        )


_SCHEMES: Final[Mapping[str, Callable[[str, str], None]]] = {"kafka": _check_kafka}
