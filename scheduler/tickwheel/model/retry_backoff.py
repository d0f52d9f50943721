"""The wait of a message after a failed attempt, from the back-off settings of its queue."""

import random

from tickwheel.model.queue_config import QueueConfig
from tickwheel.runtime.backoff import exponential


def draw_backoff_ms(config: QueueConfig, attempt: int) -> int:
    """Return an exponential back-off with full jitter, in ms: at least 1 ms, unless the queue's back-off is 0.

    "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015) describes full jitter.
    """
    ceiling = exponential(config.backoff_ms, config.backoff_max_ms, attempt)
    return random.randint(1, ceiling) if ceiling > 0 else 0
