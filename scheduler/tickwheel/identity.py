"""Ids that the client makes: 20 characters that sort by the time they were made, then random.

Ten characters of milliseconds and ten random ones, in base32hex, whose byte order is its numeric order.
"""

import base64
import os
import time

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_POOL = 512


class IdMaker:
    """Makes ids; one for each thread at a time. Random bits are drawn from the system's generator in bulk."""

    def __init__(self) -> None:
        self._random = ""
        self._at = 0
        self._ms = -1
        self._prefix = ""

    def __call__(self) -> str:
        ms = time.time_ns() // 1_000_000
        if ms != self._ms:
            self._ms = ms
            self._prefix = "".join(_DIGITS[ms >> shift & 31] for shift in range(45, -1, -5))
        if self._at >= len(self._random):
            # 25 bytes are 40 characters: four ids without padding.
            self._random = base64.b32hexencode(os.urandom(25 * _POOL)).decode().lower()
            self._at = 0
        start = self._at
        self._at = start + 10
        return self._prefix + self._random[start : start + 10]
