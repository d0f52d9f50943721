"""Requests of the largest size, for every RPC: hostile ones that follow from the descriptor of the request, and legal
ones. The name of a shape describes the content of its requests.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tickwheel import limits
from tickwheel.rpc.methods import Method
from tickwheel.rpc.request_form import ITEMS_MAX, is_map
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

SIZE = limits.REQUEST_BYTES - 1024
# The shapes that take little memory, so the service may accept them: a parser copies one field of bytes, whatever is in
# it, and few fields in each message need little.
CHEAP = ("packed varints in", "few known and unknown", "few long numbers in")
# A field that no request has.
_UNKNOWN = 31
_VARINT, _LENGTH_DELIMITED, _START_GROUP, _END_GROUP = 0, 2, 3, 4


def hostile_requests(method: Method, namespace: str, queue: str) -> Iterator[tuple[str, bytes]]:
    """Yield the hostile requests of an RPC, each with the name of its shape."""
    kind = method.request.DESCRIPTOR
    names = {"namespace": namespace, "queue": queue}
    head = method.request(**{name: text for name, text in names.items() if name in kind.fields_by_name})
    shapes = {
        "unknown varints": _repeat(_tag(_UNKNOWN, _VARINT) + b"\1"),
        "unknown groups": _repeat(_tag(_UNKNOWN, _START_GROUP) + _tag(_UNKNOWN, _END_GROUP)),
        "nested unknown groups": _repeat(_tag(_UNKNOWN, _START_GROUP)),
        "packed varints in an unknown field": _field(_UNKNOWN, b"\1" * (SIZE - 64)),
    }
    for path in _repeated_fields(kind):
        inner = _repeat(_tag(path[-1].number, _LENGTH_DELIMITED) + b"\0")
        for outer in reversed(path[:-1]):
            inner = _field(outer.number, inner[: SIZE - 64])
        shapes["empty items of " + ".".join(field.name for field in path)] = inner
        if len(path) > 1:
            # As many as each item may have, so that only their sum is too large.
            item = _field(path[0].number, (_tag(_UNKNOWN, _VARINT) + b"\1") * 90)
            shapes[f"unknown varints in items of {path[0].name}"] = item * 1_000
            # A negative number has ten bytes.
            item = _field(path[0].number, (_tag(_UNKNOWN, _VARINT) + varint(2**64 - 5)) * 26)
            shapes[f"few long numbers in items of {path[0].name}"] = item * _items_max(path[0])
        shapes["packed varints in " + ".".join(field.name for field in path)] = _field(
            path[-1].number, b"\1" * 1_000_000
        )
    for path in _messages(kind):
        shapes.update(_alternating(path))
    for name, body in shapes.items():
        yield name, head.SerializeToString() + body


def legal_requests(namespace: str, queue: str, number: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield the largest legal requests: the shape, the RPC and the request. ``number`` distinguishes the messages."""

    def batch(payload: int, pairs: int, value: int) -> bytes:
        metadata = {f"key-{n:02d}": "v" * value for n in range(pairs)}
        new = [
            messages.NewMessage(id=f"{number}-{value}-{payload}-{n}", payload=b"x" * payload, metadata=metadata)
            for n in range(limits.BATCH_ITEMS)
        ]
        request: bytes = calls.EnqueueBatchRequest(namespace=namespace, queue=queue, messages=new).SerializeToString()
        assert len(request) <= limits.REQUEST_BYTES
        return request

    leases = [messages.Lease(id="x" * 128, token=b"t" * 16, queue_number=1, attempt=1)] * limits.BATCH_ITEMS
    results = dict.fromkeys(range(limits.BATCH_ITEMS), "r" * limits.RESULT_BYTES)
    complete = calls.CompleteRequest(namespace=namespace, queue=queue, leases=leases, results=results)
    item = calls.FailRequest.Item(lease=leases[0], error="e" * 40_000)
    fail = calls.FailRequest(namespace=namespace, queue=queue, items=[item] * limits.FAIL_ITEMS)
    yield "1,000 messages with 4 KB each", "EnqueueBatch", batch(4_000, 0, 0)
    yield "1,000 messages with 3 KB and 16 pairs each", "EnqueueBatch", batch(3_000, 16, 20)
    yield "1,000 messages with 16 long pairs each", "EnqueueBatch", batch(0, 16, 220)
    yield "1,000 leases with results", "Complete", complete.SerializeToString()
    yield "100 long errors", "Fail", fail.SerializeToString()


def _repeated_fields(kind: Descriptor) -> Iterator[list[FieldDescriptor]]:
    """Yield the path to each repeated field, also inside messages."""
    for field in kind.fields:
        if field.is_repeated:
            yield [field]
        if field.message_type is not None and not is_map(field):
            for path in _repeated_fields(field.message_type):
                yield [field, *path]


def _alternating(path: list[FieldDescriptor]) -> Iterator[tuple[str, bytes]]:
    """Yield messages, or entries of maps, in which known and unknown fields alternate.

    A parser needs fifty bytes for each unknown field that follows a known one. One message is as large as the request.
    In the other shapes, lists and maps have as many items as they may have.
    """
    field = path[-1]
    assert field.message_type is not None
    two = _known(field.message_type) + _tag(_UNKNOWN, _VARINT) + b"\1"
    # The service does not count the fields in the smallest messages and entries.
    for size in (SIZE - 256, 4_000, 220, 120, 40):
        body = _field(field.number, two * (size // len(two)))
        if size < 10_000:
            body *= min(_items_max(field), SIZE // len(body))
        for outer in reversed(path[:-1]):
            body = _field(outer.number, body)
            body *= max(1, min(_items_max(outer), SIZE // len(body)))
        if len(body) <= limits.UNCOUNTED_REQUEST_BYTES:
            return
        shape = "few" if size <= (40 if is_map(field) else 120) else "many"
        names = ".".join(each.name for each in path)
        yield f"{shape} known and unknown fields in turns in {size:,} bytes of {names}", body


def _items_max(field: FieldDescriptor) -> int:
    message = field.containing_type
    return ITEMS_MAX[f"{message.name}.{field.name}"] if message is not None and field.is_repeated else 1


def _messages(kind: Descriptor) -> Iterator[list[FieldDescriptor]]:
    """Yield the path to each field that is a message or a map, also inside messages."""
    for field in kind.fields:
        if field.message_type is not None:
            yield [field]
            if not is_map(field):
                for path in _messages(field.message_type):
                    yield [field, *path]


def _known(message: Descriptor) -> bytes:
    """Return a short field of the message."""
    texts = [field for field in message.fields if field.type in (field.TYPE_STRING, field.TYPE_BYTES)]
    if not texts:
        return _tag(message.fields[0].number, _VARINT) + b"\1"
    return _tag(texts[0].number, _LENGTH_DELIMITED) + b"\1a"


def _repeat(field: bytes) -> bytes:
    return field * ((SIZE - 128) // len(field))


def _field(number: int, body: bytes) -> bytes:
    return _tag(number, _LENGTH_DELIMITED) + varint(len(body)) + body


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def send(channel: Any, method: Method, request: bytes) -> None:
    """Send one request, and read the answer."""
    if method.client_streaming:
        answer = channel.stream_stream(method.path)(iter([request]), timeout=60)
    elif method.server_streaming:
        answer = channel.unary_stream(method.path)(request, timeout=60)
    else:
        channel.unary_unary(method.path)(request, timeout=60)
        return
    list(answer)
