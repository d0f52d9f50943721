"""Which of many like lines of the log are told: 64 shards of a server that is away would say the same each second."""

import logging
import re
from time import monotonic
from typing import Final

PAUSE_S: Final = 30.0
# So many texts are known; then all are forgotten.
_TEXTS_MAX: Final = 1_000
# In what one and the same trouble differs from call to call and from shard to shard.
_VARIABLE_PARTS: Final = re.compile(r"\b(?:\d[\d.]* (?:s|attempts)|(?:attempt|shard) \d+)\b")


class LogThrottle:
    """Lets the same text, but for attempts, seconds and shards that it counts, be told once in a while. Any threads.

    ``has_told`` is set when something is told; whoever tells that all is well again takes it back.
    """

    def __init__(self) -> None:
        self.has_logged = False
        self._logged_at: dict[str, float] = {}

    def should_log(self, text: str) -> bool:
        """Whether the text was not told for ``PAUSE_S`` seconds. It counts as told then."""
        now, text = monotonic(), _VARIABLE_PARTS.sub("", text)
        if now - self._logged_at.get(text, -PAUSE_S) < PAUSE_S:
            return False
        if len(self._logged_at) >= _TEXTS_MAX:
            self._logged_at.clear()
        self._logged_at[text] = now
        self.has_logged = True
        return True

    def level(self, text: str) -> int:
        """WARNING where it is due, else DEBUG: what is between is for whoever debugs."""
        return logging.WARNING if self.should_log(text) else logging.DEBUG
