"""For Python processes under libfaketime, which makes an error of a sleep whose end has come when it looks at it."""

import time
from contextlib import suppress
from typing import SupportsIndex

_sleep = time.sleep


def _sleep_or_go_on(seconds: SupportsIndex | float, /) -> None:
    with suppress(OSError):
        _sleep(seconds)


time.sleep = _sleep_or_go_on
