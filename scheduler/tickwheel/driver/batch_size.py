"""Adaptive batch size for reads whose element size is unknown in advance."""


class AdaptiveBatchSize:
    """Adjusts ``count`` so that replies approach the size ``target``, in timers or in bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.count = 16

    def observe(self, elements: int, size: int) -> bool:
        """Record a reply's number of elements and total size. Return whether the reply was full, so more may follow."""
        if elements == 0:
            return False
        is_full = elements >= self.count
        fitting = max(1, self._target * elements // max(size, 1))
        # Grow by at most 4x a step and shrink immediately, so that no reply is much too large.
        self.count = min(fitting, self.count * 4, self._target)
        return is_full
