"""Each transition once, in order: what is not newer than the last of its message came before.

Only the messages that changed most lately are remembered. That is enough, however many there are: what the relay sends
again was sent seconds ago, a few windows of each shard (`relay/in_flight_windows.py`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tickwheel.events.encoding import Transition

# About 300 bytes each.
REMEMBERED: Final = 500_000


@dataclass(frozen=True, slots=True)
class Gap:
    """Transitions of a message are missing before this one: ``last`` is the version that came before, 0 for none."""

    transition: Transition
    last: int


class Deduplicator:
    """Follows the versions of messages."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        # Incarnation, version and partition.
        self._last: OrderedDict[tuple[str, str, str, str | None], tuple[int, int, int]] = OrderedDict()

    def is_new(self, transition: Transition) -> bool:
        """Whether this transition did not come before."""
        last = self._last.get(_message_key(transition))
        return last is None or (transition.incarnation, transition.version) > last[:2]

    def record(self, transition: Transition, partition: int) -> Gap | None:
        """Remember a new one of a partition; the gap before it, if one is known of."""
        message = _message_key(transition)
        last = self._last.pop(message, None)
        self._last[message] = transition.incarnation, transition.version, partition
        if len(self._last) > self._remembered:
            self._last.popitem(last=False)
        if last is None:
            # Its first ones may be older than what was read, or than the topic.
            return None
        before = last[1] if last[0] == transition.incarnation else 0
        return None if transition.version == before + 1 else Gap(transition, before)

    def forget(self, partition: int) -> None:
        """The messages of a partition are as if they were never seen."""
        for message in [message for message, last in self._last.items() if last[2] == partition]:
            del self._last[message]


def _message_key(transition: Transition) -> tuple[str, str, str, str | None]:
    return transition.namespace, transition.queue, transition.id, transition.exclusive_value
