"""The topics that a program with Kafka brokers permits as sinks.

Who may configure a queue chooses the URL of its sink, but the event process writes with its own rights. So no sink has
the topic of the transitions, and only the topics that the operator permits can be sinks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

ALL_TOPICS: Final = ("*",)


@dataclass(frozen=True, slots=True)
class ServedTopics:
    """The topics that match one of the shell ``patterns``, except the ``relay_topic``, which has the transitions."""

    relay_topic: str
    patterns: Sequence[str] = ALL_TOPICS

    def refusal(self, topic: str) -> str:
        """Return why a sink must not have this topic; an empty text if it may."""
        if topic == self.relay_topic:
            return f"the topic {topic} of the sink is the topic of the transitions (--topic)"
        if not any(fnmatchcase(topic, pattern) for pattern in self.patterns):
            return f"no pattern of --sink-topics permits the topic {topic} of the sink: {', '.join(self.patterns)}"
        return ""
