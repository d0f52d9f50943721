"""What goes into one call of the service: so many messages, of so many bytes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Final

from tickwheel.model.message import LeasedMessage, NewMessage
from tickwheel.operations.enqueue import check_new
from tickwheel.rpc import message_conversion
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.v1 import message_pb2 as messages

# Of messages to enqueue, of their bytes, and of leases or ids; a server takes no request beyond 4 MiB.
BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 3 * 1024 * 1024


def chunk_new_messages(new_messages: Iterable[NewMessage]) -> Iterator[list[messages.NewMessage]]:
    """As many as fit into one call. Raises InvalidArgument for one that is wrong, before its part is there."""
    chunk: list[messages.NewMessage] = []
    size = 0
    for new in new_messages:
        check_new(new)
        proto = message_conversion.new_message_to_proto(new)
        bytes_ = proto.ByteSize()
        if chunk and (len(chunk) == BATCH_MESSAGES or size + bytes_ > _BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(proto)
        size += bytes_
    if chunk:
        yield chunk


def chunk_leases(
    leased_messages: Sequence[LeasedMessage], results: Sequence[bytes | None] | None = None
) -> Iterator[tuple[str, list[tuple[LeasedMessage, bytes | None]]]]:
    """A queue, and as many of its messages, each with its result, as fit into one call."""
    pairs = zip(leased_messages, repeat(None) if results is None else results, strict=False)
    for queue, group in groupby(pairs, lambda item: item[0].queue):
        for chunk in iter_chunks(list(group), BATCH_MESSAGES):
            yield queue, chunk
