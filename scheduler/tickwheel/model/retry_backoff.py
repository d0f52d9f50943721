"""The wait of a message after a failed attempt, from the back-off settings of its queue."""

from zlib import crc32

from tickwheel.model.queue_config import QueueConfig
from tickwheel.runtime.backoff import exponential


def draw_backoff_ms(config: QueueConfig, attempt: int, seed: bytes) -> int:
    """Return an exponential back-off with equal jitter, in ms: between half of the bound and the bound.

    With full jitter, all attempts could pass within a second, before the cause of a failure is over. "Exponential
    Backoff And Jitter" (AWS Architecture Blog, 2015) describes both. The back-off is 0 only if that of the queue is 0.
    A call that is repeated must draw the same back-off, so the jitter follows from the ``seed``, such as a lease.
    """
    bound = exponential(config.backoff_ms, config.backoff_max_ms, attempt)
    shortest = (bound + 1) // 2
    return shortest + crc32(seed) % (bound - shortest + 1)
