"""Limits repeated log lines: 64 shards of an unreachable server would each log the same line every second."""

import logging
import re
from time import monotonic
from typing import Final

PAUSE_S: Final = 30.0
# The maximum number of texts kept. Beyond it, all texts are dropped.
_TEXTS_MAX: Final = 1_000
# The parts in which reports of the same problem differ from call to call and from shard to shard.
_VARIABLE_PARTS: Final = re.compile(r"\b(?:\d[\d.]* (?:s|attempts)|(?:attempt|shard) \d+)\b")


class LogThrottle:
    """Lets the same text through once every ``PAUSE_S`` seconds. Thread-safe.

    Texts are the same if they differ only in numbers of attempts, durations and shard numbers. ``has_logged`` is True
    from the first text let through, until the caller logs the recovery and resets the attribute.
    """

    def __init__(self) -> None:
        self.has_logged = False
        self._logged_at: dict[str, float] = {}

    def should_log(self, text: str) -> bool:
        """Return whether the text was not let through for ``PAUSE_S`` seconds. If True, the text counts as logged."""
        now, text = monotonic(), _VARIABLE_PARTS.sub("", text)
        if now - self._logged_at.get(text, -PAUSE_S) < PAUSE_S:
            return False
        if len(self._logged_at) >= _TEXTS_MAX:
            self._logged_at.clear()
        self._logged_at[text] = now
        self.has_logged = True
        return True

    def level(self, text: str) -> int:
        """Return WARNING if the text should be logged, else DEBUG, so that repeats are visible only when debugging."""
        return logging.WARNING if self.should_log(text) else logging.DEBUG
