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


class _IdGenerator(threading.local):
    """Random characters are drawn from the system's generator in bulk, for each thread its own."""

    def __init__(self) -> None:
        self.random = ""
        self.at = 0
        self.ms = -1
        self.prefix = ""


_generator = _IdGenerator()


def new_message_id() -> str:
    """An id that nobody else makes: 50 random bits within its millisecond."""
    generator = _generator
    ms = time.time_ns() // 1_000_000
    if ms != generator.ms:
        generator.ms = ms
        generator.prefix = "".join(_DIGITS[ms >> shift & 31] for shift in range(45, -1, -5))
    start = generator.at
    if start >= len(generator.random):
        generator.random = os.urandom(_CHARS * _POOL).translate(_TO_DIGIT).decode()
        start = 0
    generator.at = start + _CHARS
    return generator.prefix + generator.random[start : start + _CHARS]
