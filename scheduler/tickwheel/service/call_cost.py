"""What a call counts for against its token's messages a second."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Cost = Callable[[Any], int]
# What is leased was paid for when it was enqueued. To refuse these would only have its work done twice.
_FREE: Final = ("Complete", "Fail", "Release", "Extend", "GetLease")
_COSTS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(_FREE, lambda _: 0),
    "EnqueueBatch": lambda request: len(request.messages),
    "EnqueueStream": lambda request: len(request.messages),
    "DequeueBatch": lambda request: len(request.requests),
    "Cancel": lambda request: len(request.ids),
}


def cost_of(method: str) -> Cost:
    """Counts the messages of a request of the method; one for each call that names none, or asks for something."""
    cost = _COSTS.get(method)
    if cost is None:
        return lambda _: 1
    return cost if method in _FREE else lambda request: max(cost(request), 1)
