"""The wake channels that lack a subscription. The callers of a service take turns. No I/O.

One call can wait for thousands of channels, and a part of them is sent at a time. Without turns, a call that waits for
one queue would be subscribed after all channels of the callers before it.
"""

from collections import OrderedDict


class MissingChannels:
    """The channels of each caller, in the order in which they were added."""

    def __init__(self) -> None:
        # The next caller comes first. An ordered dictionary finds its first key at once, however many were removed.
        self._by_caller: OrderedDict[str, OrderedDict[bytes, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_caller)

    def add(self, channel: bytes, caller: str) -> None:
        """Add a channel. Does nothing if it is there."""
        self._by_caller.setdefault(caller, OrderedDict())[channel] = None

    def discard(self, channel: bytes, caller: str) -> None:
        """Remove a channel if it is there."""
        channels = self._by_caller.get(caller)
        if channels is not None:
            channels.pop(channel, None)
            if not channels:
                del self._by_caller[caller]

    def move(self, channel: bytes, caller: str, to: str) -> bool:
        """Let another caller's turns send a channel if that caller has fewer of them. Return whether it does."""
        channels = self._by_caller.get(caller)
        if channels is None or channel not in channels or len(self._by_caller.get(to, ())) >= len(channels):
            return False
        self.discard(channel, caller)
        self.add(channel, to)
        return True

    def take(self, count: int) -> list[bytes]:
        """Remove and return up to ``count`` channels, as many of each caller as possible."""
        taken: list[bytes] = []
        share = max(count // max(len(self._by_caller), 1), 1)
        while self._by_caller and len(taken) < count:
            caller, channels = self._by_caller.popitem(last=False)
            size = min(share, len(channels), count - len(taken))
            taken += [channels.popitem(last=False)[0] for _ in range(size)]
            if channels:
                self._by_caller[caller] = channels
        return taken
