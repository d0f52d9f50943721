"""What the wheel of a shard knows of time. The driver reads no clock of its own, so that tests can turn every one."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The shard's clock as its driver sees it, and a monotonic one to wait by. All in ms."""

    def now(self) -> int:
        """The driver's bound on the shard's time: never ahead of what the clock guard trusts."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """Time that only passes: for rotation and waiting."""

    def monotonic_at(self, time_ms: int) -> float:
        """The moment on the monotonic clock at which `now` may have reached a time."""

    @property
    def unsaved_offset(self) -> int | None:
        """What the shard is to keep of an accepted step, in ms, and has not; None where there is nothing new."""

    def on_claimed(self, server_ms: int, high_ms: int | None, accepted_ms: int) -> None:
        """The shard was claimed: its server's clock, its high-water mark, and what it keeps of an accepted step."""

    def observe(self, server_ms: int) -> None:
        """What the server's clock showed in the last reply."""

    def needs_probe(self, waiting: bool) -> bool:
        """Whether the server's clock should be asked. ``waiting``: timers in memory wait for it."""

    def next_probe(self, waiting: bool) -> float | None:
        """The moment on the monotonic clock at which `wants_look` becomes true."""
