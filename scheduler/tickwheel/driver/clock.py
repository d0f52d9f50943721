"""The clock that a driver needs. A driver reads no other clock, so tests can control the time completely."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The time of a shard, and a monotonic clock for waiting. All times are in ms."""

    def now(self) -> int:
        """Return the time up to which timers may fire: never ahead of the time that the clock guard trusts."""

    @property
    def is_holding(self) -> bool:
        """Whether the clock guard holds, because the server's clock is not trusted."""

    @property
    def ahead_ms(self) -> int:
        """By how many ms the server's clock is ahead of the trusted clock."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """A monotonic clock, for waits and for periodic work."""

    def monotonic_at(self, time_ms: int) -> float:
        """Return the earliest moment on the monotonic clock at which `now` can reach ``time_ms``."""

    @property
    def unsaved_offset(self) -> int | None:
        """The accepted step of the server's clock, in ms, if the shard does not store it yet; else None.

        The step is the offset between the server's clock and this host's clock that an operator has accepted. The
        clocks drift, so the offset can change later, and must then be stored again.
        """

    def on_claimed(self, server_ms: int, high_ms: int | None, accepted_ms: int) -> None:
        """Take over the values that the claim returned.

        They are the server's time, the time up to which the shard has been driven (``high_ms``), and the accepted step.
        """

    def observe(self, server_ms: int) -> None:
        """Record the server's time in the last reply."""

    def next_probe(self, waiting: bool) -> float:
        """Return the moment on the monotonic clock at which to read the server's clock; infinity if never.

        ``waiting`` is true if there are timers in memory.
        """
