"""Messages and leases in chunks that fit into one RPC."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Final, TypeVar

from tickwheel.model.message import LeasedMessage, NewMessage
from tickwheel.operations.enqueue import check_new
from tickwheel.operations.results import queue_identity
from tickwheel.plan import iter_argument
from tickwheel.rpc import message_conversion
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.v1 import message_pb2 as messages

# The limits of one request: items (messages to enqueue, leases or ids), and bytes of messages. The service accepts
# requests of up to 4 MiB.
BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 3 * 1024 * 1024
L = TypeVar("L", bound=LeasedMessage)


def chunk_new_messages(new_messages: Iterable[NewMessage]) -> Iterator[list[messages.NewMessage]]:
    """Cut messages into chunks that fit into one request.

    Raises InvalidArgument for an invalid message, before it yields the chunk with this message.
    """
    chunk: list[messages.NewMessage] = []
    size = 0
    for new in iter_argument(new_messages):
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
    leased_messages: Sequence[L], results: Sequence[bytes | None] | None = None
) -> Iterator[tuple[str, list[L], list[bytes | None]]]:
    """Yield the queue, the messages and the results of each request. The messages have the same number of the queue."""
    pairs = zip(leased_messages, repeat(None) if results is None else results, strict=False)
    for (queue, _), group in groupby(pairs, lambda item: queue_identity(item[0])):
        for chunk in iter_chunks(list(group), BATCH_MESSAGES):
            yield queue, [message for message, _ in chunk], [result for _, result in chunk]
