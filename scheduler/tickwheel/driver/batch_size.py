"""Adaptive batch size for reads whose element size is unknown in advance."""


class AdaptiveBatchSize:
    """Adjusts ``count``, the number of elements to read at once, so that a reply has about the size ``target``.

    An element is an entry of a stream, or a chunk of a slot. Drivers measure its size in timers, the relay in bytes.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.count = 16

    def observe(self, elements: int, size: int) -> bool:
        """Record the number of elements in a reply and their total size. Return whether there may be more elements."""
        if elements == 0:
            return False
        is_full = elements >= self.count
        fitting = max(1, self._target * elements // max(size, 1))
        # Grow by at most a factor of 4 in each step and shrink immediately, so that no reply is much too large.
        self.count = min(fitting, self.count * 4, self._target)
        return is_full
