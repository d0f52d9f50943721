"""Ids that the client makes: 20 characters that sort by the time they were made, then random.

Ten characters of milliseconds and ten random ones of five bits each, in base32hex, whose byte order is numeric order.
"""

import os
import threading
import time

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
# Any byte becomes the digit of its low five bits: uniform bytes give uniform digits.
_TO_DIGIT = bytes(ord(_DIGITS[byte & 31]) for byte in range(256))
_POOL = 512
_CHARS = 10


class _Maker(threading.local):
    """Random characters are drawn from the system's generator in bulk, for each thread its own."""

    def __init__(self) -> None:
        self.random = ""
        self.at = 0
        self.ms = -1
        self.prefix = ""


_maker = _Maker()


def new_id() -> str:
    """An id that nobody else makes: 50 random bits within its millisecond."""
    maker = _maker
    ms = time.time_ns() // 1_000_000
    if ms != maker.ms:
        maker.ms = ms
        maker.prefix = "".join(_DIGITS[ms >> shift & 31] for shift in range(45, -1, -5))
    start = maker.at
    if start >= len(maker.random):
        maker.random = os.urandom(_CHARS * _POOL).translate(_TO_DIGIT).decode()
        start = 0
    maker.at = start + _CHARS
    return maker.prefix + maker.random[start : start + _CHARS]
