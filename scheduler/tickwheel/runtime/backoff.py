"""How long to wait after each of several failures in a row, before the next attempt to reach a server."""

import random
from typing import Final

# The first wait and the longest, in seconds.
SHORTEST_S: Final = 0.05
LONGEST_S: Final = 2.0


class Backoff:
    """Waits that double from failure to failure, with jitter."""

    def __init__(self) -> None:
        self._wait_s = SHORTEST_S

    def reset(self) -> None:
        """Something has succeeded: the next wait is the first again."""
        self._wait_s = SHORTEST_S

    def next(self) -> float:
        """Seconds to wait now: from half of the wait to all of it."""
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_S)
        return wait_s * random.uniform(0.5, 1)
