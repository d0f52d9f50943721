"""Limits repeated log lines. Otherwise, each shard of an unreachable server would log the same line every second."""

import logging
import re
from time import monotonic
from typing import Final

PAUSE_S: Final = 30.0
# The maximum number of texts kept. Before one more text is added, all texts are dropped.
_TEXTS_MAX: Final = 1_000
# The parts in which reports of the same problem differ from call to call and from shard to shard.
_VARIABLE_PARTS: Final = re.compile(r"\b(?:\d[\d.]* (?:s|attempts)|(?:attempt|shard) \d+)\b")


class LogThrottle:
    """Accepts the same text at most once every ``pause_s`` seconds. Thread-safe.

    Texts count as the same if they differ only in numbers of attempts, durations or shard numbers. The first accepted
    text sets ``has_logged`` to True. The caller resets this attribute when it logs the recovery.
    """

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self.has_logged = False
        self._logged_at: dict[str, float] = {}

    def should_log(self, text: str) -> bool:
        """Accept the text and return True. If it was accepted in the last ``pause_s`` seconds, return False."""
        now, text = monotonic(), _VARIABLE_PARTS.sub("", text)
        if now - self._logged_at.get(text, -self._pause_s) < self._pause_s:
            return False
        if len(self._logged_at) >= _TEXTS_MAX:
            self._logged_at.clear()
        self._logged_at[text] = now
        self.has_logged = True
        return True

    def level(self, text: str) -> int:
        """Return the log level for the text: WARNING if `should_log` accepts the text, else DEBUG."""
        return logging.WARNING if self.should_log(text) else logging.DEBUG
