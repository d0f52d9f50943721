"""How soon a member of an election by lease answers an event of which all members hear at once. All times are in ms.

While many processes start, each of them causes several messages to all others. With a fixed time, 200 processes that
start at once would make tens of thousands of calls in a second or two.
"""

from typing import Final

# Members answer after a random part of this time, so that they do not all call at once.
JITTER_MS: Final = 20.0
# With more members than this, the time grows in proportion. A shard changes hands after up to three such times, and
# must do so within a second.
_FEW_MEMBERS: Final = 10
_JITTER_MAX_MS: Final = 200.0


def longest_wait_ms(members: int) -> float:
    """Return the time of which a member waits for a random part before it calls."""
    return min(JITTER_MS * max(1.0, members / _FEW_MEMBERS), _JITTER_MAX_MS)


def reading_pause_ms(members: int) -> float:
    """Return the time in which a member that waits for a shard reads the claim once, however many messages come.

    Perhaps nobody drives the shard meanwhile. So this time does not grow, and few members do not wait.
    """
    return JITTER_MS if members > _FEW_MEMBERS else 0.0
