"""What goes into one call of the service: so many messages, of so many bytes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Final

from tickwheel.model.message import LeasedMessage, NewMessage
from tickwheel.operations.enqueue import check_new
from tickwheel.rpc import message_conversion as conversion
from tickwheel.v1 import message_pb2 as messages

# Of messages to enqueue, of their bytes, and of leases or ids; a server takes no request beyond 4 MiB.
BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 3 * 1024 * 1024


def batches(given: Iterable[NewMessage]) -> Iterator[list[messages.NewMessage]]:
    """As many as fit into one call. Raises InvalidArgument for one that is wrong, before its part is there."""
    part: list[messages.NewMessage] = []
    size = 0
    for new in given:
        check_new(new)
        made = conversion.new_message(new)
        bytes_ = made.ByteSize()
        if part and (len(part) == BATCH_MESSAGES or size + bytes_ > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(made)
        size += bytes_
    if part:
        yield part


def of_one_queue(
    given: Sequence[LeasedMessage], results: Sequence[bytes | None] | None = None
) -> Iterator[tuple[str, list[tuple[LeasedMessage, bytes | None]]]]:
    """A queue, and as many of its messages, each with its result, as fit into one call."""
    each = zip(given, repeat(None) if results is None else results, strict=False)
    for queue, of_queue in groupby(each, lambda item: item[0].queue):
        part = list(of_queue)
        for first in range(0, len(part), BATCH_MESSAGES):
            yield queue, part[first : first + BATCH_MESSAGES]
