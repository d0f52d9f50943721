"""How many elements to ask for, where the size of an element is known only once it has come."""


class Portion:
    """Follows the size of what came: aims at ``wanted`` timers in a reply."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.count = 16

    def took(self, elements: int, timers: int) -> None:
        """A reply had so many elements, with so many timers in them."""
        if elements == 0:
            return
        fitting = max(1, self._wanted * elements // max(timers, 1))
        # Growing slowly and shrinking at once, so that one reply is never much too large.
        self.count = min(fitting, self.count * 4, self._wanted)
