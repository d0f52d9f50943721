"""Ids that the client generates: 20 characters that sort by creation time.

An id consists of ten characters for the milliseconds since 1970 and ten random characters. Each character encodes five
bits. The alphabet is base32hex, in which the order of the characters is the order of their numbers.
"""

import os
import threading
import time

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
# A byte becomes the digit of its low five bits, so uniform bytes give uniform digits.
_TO_DIGIT = bytes(ord(_DIGITS[byte & 31]) for byte in range(256))
_POOL = 512
_CHARS = 10


class _IdGenerator(threading.local):
    """State of the generator, one for each thread. Random characters are drawn from the operating system in bulk."""

    def __init__(self) -> None:
        self.random = ""
        self.at = 0
        self.ms = -1
        self.prefix = ""


_generator = _IdGenerator()


def new_message_id() -> str:
    """Return a new id. Ids of the same millisecond differ in 50 random bits."""
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
