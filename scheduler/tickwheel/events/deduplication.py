"""Recognizes duplicates: a transition is a duplicate if it is not newer than the last transition of its message.

Only the messages with the latest transitions are remembered. That suffices for any number of messages, because the
relay only repeats transitions that it first sent seconds ago: a few windows of each shard (`relay/relay.py`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tickwheel.events.encoding import Transition

# Messages to remember by default, about 300 bytes each.
REMEMBERED: Final = 500_000


@dataclass(frozen=True, slots=True)
class Gap:
    """Transitions of a message are missing before ``transition``. ``last`` is the last version that was read, or 0."""

    transition: Transition
    last: int


class Deduplicator:
    """Follows the versions of messages."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        # By message: incarnation, version and partition of its last transition.
        self._last: OrderedDict[tuple[str, str, str, str | None], tuple[int, int, int]] = OrderedDict()

    def is_new(self, transition: Transition) -> bool:
        """Return whether this transition was not read before."""
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
            # The message's first transitions may be older than the start of this reader, or than the topic.
            return None
        before = last[1] if last[0] == transition.incarnation else 0
        return None if transition.version == before + 1 else Gap(transition, before)

    def forget(self, partition: int) -> None:
        """Forget all messages of a partition."""
        for message in [message for message, last in self._last.items() if last[2] == partition]:
            del self._last[message]


def _message_key(transition: Transition) -> tuple[str, str, str, str | None]:
    return transition.namespace, transition.queue, transition.id, transition.exclusive_value
