"""Check and pack messages for the calls of the script `enqueue`."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import message_content, validation
from tickwheel.model.json_payload import encode_payload
from tickwheel.model.message import NewMessage, ReceivedMessage
from tickwheel.model.message_id import new_message_id
from tickwheel.model.priority import priority_deadline_ms
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.storage import trace_context
from tickwheel.storage.record import BIAS, BODY, EXPLICIT, OVERRIDES, OVERRIDES_SECTION, PAIRS, name, pairs_section
from tickwheel.storage.sharding import shard_of

_HEAD = Struct(">BBHI")
_NUMBER = Struct(">H")
_NONCE = Struct(">I")
_DEADLINE = Struct(">Q")
_ABSOLUTE, _RELATIVE_DEADLINE = 1, 2
# A script call may write a limited number of index entries (`limits.CALL_ENTRIES`). An entry counts with this weight,
# as in `lua/_ready_indexes.lua`.
_WEIGHT, _EXCLUSIVE_WEIGHT = 4, 16


@dataclass(slots=True)
class PackedMessage:
    """A message ready to send.

    ``head``, ``field`` and ``tail`` are arguments of the script. ``body`` is the field and the value of a large
    payload, which a separate Redis command stores before the script call. ``units`` is the weight of the message's
    index entries.
    """

    id: str
    shard: int
    head: bytes
    field: bytes
    tail: bytes
    body: tuple[bytes, bytes] | None
    units: int

    def size(self) -> int:
        """Return the number of bytes of the message in the script call."""
        return len(self.head) + len(self.field) + len(self.tail)

    def out_of_band_bytes(self) -> int:
        """Return the number of bytes that are sent outside the script call: those of a large payload."""
        return len(self.body[1]) if self.body else 0


class Packer:
    """Checks and packs the messages of one client call for one queue.

    Every message gets a different nonce: a number by which the script recognises a retried call. In the service, it is
    the nonce of the client's call, because the client may retry the call at another process of the service.
    """

    def __init__(self, context: NamespaceContext, queue: str, config: QueueConfig) -> None:
        self._context = context
        self._queue = queue
        self.config = config
        self.uid = config.uid
        self._number = _NUMBER.pack(config.number)
        self._nonce = int.from_bytes(os.urandom(4))

    def pack(self, new: NewMessage) -> PackedMessage:
        """Return the packed message, after all checks that the client can make.

        Raises InvalidArgument or PayloadTooLarge.
        """
        config = self.config
        if new.id is None:
            id_ = new_message_id()
            raw_id = id_.encode()
        else:
            raw_id = validation.message_id(new.id)
            id_ = validation.to_plain_str(new.id)
        payload: object = new.payload
        if new.json is not None:
            payload = encode_payload(new.json, payload)
        if type(payload) is not bytes or len(payload) > config.payload_limit:
            payload = message_content.payload(payload, config.payload_limit)
        flags = kind = when = 0
        if new.delay is not None:
            if new.due is not None:
                raise InvalidArgument("give a delay or a due time, not both")
            when = validation.duration_ms("delay", new.delay, 0, limits.DELAY_MS_MAX)
        elif new.due is not None:
            kind, when = _ABSOLUTE, validation.due_ms(new.due)
        explicit, relative = None, kind != _ABSOLUTE
        if new.priority is not None:
            explicit = priority_deadline_ms(new.priority, new.deadline, when)
        elif new.deadline is not None:
            explicit, relative = validation.deadline_ms(new.deadline)
        first = b""
        if explicit is not None:
            flags |= EXPLICIT
            kind |= _RELATIVE_DEADLINE if relative else 0
            first = _DEADLINE.pack(explicit + BIAS)
        if new.lease is not None or new.max_attempts is not None:
            flags |= OVERRIDES
            first += _overrides(new)
        value, units = None, _WEIGHT if config.exclusive_key is None else _EXCLUSIVE_WEIGHT
        metadata = {} if new.metadata is None else message_content.metadata(new.metadata)
        pairs, content = b"", trace_context.strip_trace_context(metadata)
        if content:
            flags |= PAIRS
            pairs = pairs_section(content, config.indexed_keys)
            units *= 1 + len(content)
        if config.exclusive_key is not None:
            value = self._value(new.id, metadata, config.exclusive_key)
        large = len(payload) > limits.INLINE_BYTES
        if large:
            flags |= BODY
        field = self._number + name(raw_id, value)
        head = _HEAD.pack(flags, kind, when >> 32, when & 0xFFFFFFFF)
        rest = first + pairs
        # The digest covers the arguments as passed: a delay, not the due time that follows from it. So a message that
        # is enqueued again with the same arguments has the same digest.
        digest = hashlib.blake2b(head + rest, digest_size=8)
        digest.update(payload)
        hashed = digest.digest()
        if content is not metadata:
            # The trace context is stored with the message, but is not part of its content.
            head = _HEAD.pack(flags | PAIRS, kind, when >> 32, when & 0xFFFFFFFF)
            rest = first + pairs_section(metadata, config.indexed_keys)
        nonce = new.nonce if isinstance(new, ReceivedMessage) else 0
        if not nonce:
            nonce = self._nonce = (self._nonce + 1) & 0xFFFFFFFF
        tail = b"".join((hashed, _NONCE.pack(nonce), rest, b"" if large else payload))
        shards = self._context.shards
        shard = 0 if shards == 1 else shard_of(self._queue, raw_id if value is None else value, shards)
        return PackedMessage(id_, shard, head, field, tail, (field + hashed, payload) if large else None, units)

    def _value(self, id_: str | None, metadata: Mapping[str, str], key: str) -> bytes:
        value = metadata.get(key)
        if value is None:
            raise InvalidArgument(
                f"queue {self._queue!r} is exclusive by {key!r}: every message needs this key in its metadata, but"
                f" {'message ' + repr(id_) if id_ else 'this message'} has only the keys {sorted(metadata)}"
            )
        return value.encode()


def _overrides(new: NewMessage) -> bytes:
    lease = attempts = 0
    if new.lease is not None:
        lease = validation.duration_ms("lease", new.lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    if new.max_attempts is not None:
        attempts = validation.integer("max_attempts", new.max_attempts, 1, limits.MAX_ATTEMPTS_MAX)
    return OVERRIDES_SECTION.pack(lease, attempts)
