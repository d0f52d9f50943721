"""The wait of a message after a failed attempt, from the back-off settings of its queue."""

import random

from tickwheel.model.queue_config import QueueConfig
from tickwheel.runtime.backoff import exponential


def draw_backoff_ms(config: QueueConfig, attempt: int) -> int:
    """Return an exponential back-off with equal jitter, in ms: between half of the bound and the bound.

    With full jitter, all attempts could pass within a second, before the cause of a failure is over. "Exponential
    Backoff And Jitter" (AWS Architecture Blog, 2015) describes both. The back-off is 0 only if that of the queue is 0.
    """
    bound = exponential(config.backoff_ms, config.backoff_max_ms, attempt)
    return random.randint((bound + 1) // 2, bound)
