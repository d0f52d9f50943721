"""A reading of a server's clock, for comparisons with this host's clock and with times that the server stores."""

from dataclasses import dataclass
from typing import Any

from tickwheel.runtime.time import wall_ms


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time of a server, and the times of this host before the request and after the reply. All times are in ms."""

    server_ms: float = 0
    sent_ms: float = 0
    received_ms: float = 0

    @classmethod
    def of_reply(cls, reply: Any, sent_ms: float) -> "ClockReading":
        """Return the reading of the reply to TIME that was received just now."""
        return cls(int(reply[0]) * 1000 + int(reply[1]) / 1000, sent_ms, wall_ms())

    @property
    def answered_ms(self) -> float:
        """The time from the request until the reply."""
        return self.received_ms - self.sent_ms

    @property
    def ahead_ms(self) -> tuple[float, float]:
        """By how many ms the server's clock is ahead of this host's clock: a lower and an upper bound.

        The server has read its clock at an unknown moment between the request and the reply.
        """
        return self.server_ms - self.received_ms, self.server_ms - self.sent_ms

    def agrees(self, limit_ms: int) -> bool | None:
        """Return whether the two clocks differ by at most ``limit_ms``; None if the reply was too slow to know."""
        least, most = self.ahead_ms
        if -limit_ms <= least and most <= limit_ms:
            return True
        return False if least > limit_ms or most < -limit_ms else None
