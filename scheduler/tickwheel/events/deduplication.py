"""Recognizes duplicates: a transition is a duplicate if it is not newer than the last transition of its message.

Only the messages with the latest transitions are remembered. After a failure, the relay repeats about the last megabyte
of the events of a shard (`WINDOWS` in `relay/relay.py`), and no older events. A former leader that was frozen, or could
not reach Kafka, may send its last megabyte later.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tickwheel.events.encoding import Transition

# Default number of messages to remember, about 300 bytes each.
REMEMBERED: Final = 500_000


@dataclass(frozen=True, slots=True)
class Gap:
    """Transitions of a message are missing before ``transition``.

    ``last`` is the last version that was read of the message's incarnation; 0 if none was read.
    """

    transition: Transition
    last: int


class Deduplicator:
    """Follows the versions of messages."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        # By message: incarnation, version and partition of its last transition.
        self._last: OrderedDict[tuple[str, str, str, str | None], tuple[int, int, int]] = OrderedDict()

    def is_new(self, transition: Transition) -> bool:
        """Return whether the transition is newer than the last recorded transition of its message."""
        last = self._last.get(_message_key(transition))
        return last is None or (transition.incarnation, transition.version) > last[:2]

    def record(self, transition: Transition, partition: int) -> Gap | None:
        """Record a new transition. Return the gap before it, if there is one."""
        message = _message_key(transition)
        last = self._last.pop(message, None)
        self._last[message] = transition.incarnation, transition.version, partition
        if len(self._last) > self._remembered:
            self._last.popitem(last=False)
        if last is None:
            # This is not a gap: the reader or the topic may have started after the message's first transitions.
            return None
        before = last[1] if last[0] == transition.incarnation else 0
        return None if transition.version == before + 1 else Gap(transition, before)

    def forget(self, partition: int) -> None:
        """Forget all messages of a partition."""
        for message in [message for message, last in self._last.items() if last[2] == partition]:
            del self._last[message]


def _message_key(transition: Transition) -> tuple[str, str, str, str | None]:
    return transition.namespace, transition.queue, transition.id, transition.exclusive_value
