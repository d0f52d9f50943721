"""For Python processes under libfaketime, whose sleep up to a moment of the monotonic clock fails at once (EINVAL)."""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: SupportsIndex | float, /) -> None:
    select.select([], [], [], float(seconds))


time.sleep = _sleep
