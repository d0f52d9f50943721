"""How many elements to ask for, where the size of an element is known only once it has come."""


class AdaptiveBatchSize:
    """Follows the size of what came: aims at replies of size ``wanted``, in timers or in bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.count = 16

    def observe(self, elements: int, size: int) -> bool:
        """A reply had so many elements, of this size together; whether it was full, so that there may be more."""
        if elements == 0:
            return False
        is_full = elements >= self.count
        fitting = max(1, self._target * elements // max(size, 1))
        # Growing slowly and shrinking at once, so that one reply is never much too large.
        self.count = min(fitting, self.count * 4, self._target)
        return is_full
