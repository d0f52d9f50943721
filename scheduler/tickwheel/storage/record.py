"""A message's record as bytes. `lua/_record.lua` implements and describes the same layout.

The module also builds the name that identifies a message within its queue, and the signatures that filters test before
they compare pairs.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct

from tickwheel.storage import trace_context

EXPLICIT, OWNED, OVERRIDES, ERROR, PAIRS, BODY, BORN_PENDING, HELD = (1 << n for n in range(8))
BIAS = 2**52

HEAD = Struct(">BBIHHI")
FIXED = Struct(">HIHI8sI")
OVERRIDES_SECTION = Struct(">IH")
_U16 = Struct(">H")
_U64 = Struct(">Q")


class State(IntEnum):
    """The state of a message. In events, 0 stands for a message that does not exist."""

    INVISIBLE = 1
    PENDING = 2
    RUNNING = 3
    COMPLETED = 4
    CANCELLED = 5
    ERRORED = 6

    @property
    def label(self) -> str:
        """The lower-case name, as counts, events and the CLI print the state."""
        return self.name.lower()


@dataclass(slots=True)
class Record:
    """A decoded record. Times are in ms since 1970. ``until_ms`` is the end of invisibility, lease or retention."""

    state: State
    flags: int
    version: int
    attempts: int
    incarnation: int
    due_ms: int
    until_ms: int
    digest: bytes
    nonce: int
    deadline_ms: int
    token: bytes
    worker: str
    lease_ms: int
    max_attempts: int
    error: str
    metadata: dict[str, str]
    payload: bytes

    @property
    def explicit_deadline(self) -> bool:
        """Whether the caller set the deadline. Otherwise the deadline equals the due time."""
        return bool(self.flags & EXPLICIT)

    @property
    def holds_exclusive_value(self) -> bool:
        """Whether the message was cancelled while Running and still holds its exclusive value."""
        return bool(self.flags & HELD)


def decode(record: bytes, body: bytes = b"") -> Record:
    """Return the decoded record. Raises ValueError, IndexError or struct.error if the record is damaged.

    If the record has the flag BODY, ``body`` is its payload, which the hash `bodies` stores under `body_field`.
    """
    state, flags, version, attempts, u1, u2 = HEAD.unpack_from(record)
    at = HEAD.size
    token, worker, lease, max_attempts, error = b"", "", 0, 0, ""
    metadata: dict[str, str] = {}
    if flags & OWNED:
        end = at + 17 + record[at + 16]
        token, worker = record[at : at + 16], record[at + 17 : end].decode()
        at = end
    i1, i2, d1, d2, digest, nonce = FIXED.unpack_from(record, at)
    at += FIXED.size
    due = deadline = d1 << 32 | d2
    if flags & EXPLICIT:
        deadline = _U64.unpack_from(record, at)[0] - BIAS
        at += 8
    if flags & OVERRIDES:
        lease, max_attempts = OVERRIDES_SECTION.unpack_from(record, at)
        at += OVERRIDES_SECTION.size
    if flags & ERROR:
        end = at + 2 + _U16.unpack_from(record, at)[0]
        error = record[at + 2 : end].decode()
        at = end
    if flags & PAIRS:
        end = at + 11 + _U16.unpack_from(record, at + 9)[0]
        metadata = decode_pairs(record[at + 11 : end])
        at = end
    return Record(
        State(state), flags, version, attempts, i1 << 32 | i2, due, u1 << 32 | u2, digest, nonce, deadline,
        token, worker, lease, max_attempts, error, metadata, body if flags & BODY else record[at:],
    )  # fmt: skip


def body_field(field: bytes, record: bytes) -> bytes:
    """Return the field of the hash `bodies` that stores the payload of a record with the flag BODY.

    ``field`` is the field of the record in the hash `messages`.
    """
    at = HEAD.size + FIXED.size - 12 + (17 + record[HEAD.size + 16] if record[1] & OWNED else 0)
    return field + record[at : at + 8]


def encode(record: Record, indexed: frozenset[str] | None = None) -> tuple[bytes, bytes]:
    """Return the record as the scripts write it, and its body: the inverse of `decode`. For tests and repair tools."""
    parts = [HEAD.pack(record.state, record.flags, record.version, record.attempts, *divmod(record.until_ms, 2**32))]
    if record.flags & OWNED:
        worker = record.worker.encode()
        parts += record.token, bytes([len(worker)]), worker
    times = (*divmod(record.incarnation, 2**32), *divmod(record.due_ms, 2**32))
    parts.append(FIXED.pack(*times, record.digest, record.nonce))
    if record.flags & EXPLICIT:
        parts.append(_U64.pack(record.deadline_ms + BIAS))
    if record.flags & OVERRIDES:
        parts.append(OVERRIDES_SECTION.pack(record.lease_ms, record.max_attempts))
    if record.flags & ERROR:
        text = record.error.encode()
        parts += _U16.pack(len(text)), text
    if record.flags & PAIRS:
        parts.append(pairs_section(record.metadata, indexed))
    inline = not record.flags & BODY
    return b"".join([*parts, record.payload if inline else b""]), b"" if inline else record.payload


@lru_cache(maxsize=16_384)
def pair(key: str, value: str) -> tuple[bytes, int]:
    """Return a pair as records and indexes store it, and the three bits of the pair in the 64-bit signature.

    The bits are taken from BLAKE2b of the pair, so every language can compute the same bits. The signature is a Bloom
    filter (Bloom, 1970).
    """
    packed = _encode_pair(key, value)
    hashed = int.from_bytes(hashlib.blake2b(packed[2:], digest_size=3).digest())
    bits = 1 << (hashed & 63) | 1 << (hashed >> 6 & 63) | 1 << (hashed >> 12 & 63)
    return packed, bits


def _encode_pair(key: str, value: str) -> bytes:
    raw_key, raw_value = key.encode(), value.encode()
    return _U16.pack(len(raw_key) + len(raw_value) + 1) + bytes([len(raw_key)]) + raw_key + raw_value


def pairs_section(metadata: Mapping[str, str], indexed: frozenset[str] | None) -> bytes:
    """Return the signature, the number of indexed pairs, and the pairs: indexed pairs first.

    If ``indexed`` is None, every pair is indexed except those of the trace context. Pairs are sorted by key, so the
    order in which a caller passes the pairs does not change the content.
    """
    first, others, signature = [], [], 0
    for key, value in sorted(metadata.items()):
        if key in trace_context.KEYS:
            # Trace contexts rarely repeat, so they are kept out of the cache of `pair`.
            others.append(_encode_pair(key, value))
            continue
        packed, bits = pair(key, value)
        if indexed is None or key in indexed:
            first.append(packed)
            signature |= bits
        else:
            others.append(packed)
    blob = b"".join(first + others)
    return _U64.pack(signature) + bytes([len(first)]) + _U16.pack(len(blob)) + blob


def encode_pairs(metadata: Mapping[str, str]) -> bytes:
    """Return the pairs as a record or event stores them: the inverse of `decode_pairs`."""
    return b"".join(
        _encode_pair(key, value) if key in trace_context.KEYS else pair(key, value)[0]
        for key, value in metadata.items()
    )


def decode_pairs(blob: bytes) -> dict[str, str]:
    """Return the pairs of a record or event as a dict."""
    pairs = {}
    at = 0
    while at < len(blob):
        end = at + 2 + _U16.unpack_from(blob, at)[0]
        split = at + 3 + blob[at + 2]
        pairs[blob[at + 3 : split].decode()] = blob[split:end].decode()
        at = end
    return pairs


def encode_filters(filters: Mapping[str, str]) -> bytes:
    """Return the filter argument of the scripts dequeue, peek_orders and depth: signature and pairs."""
    signature, packed = 0, []
    for key, value in filters.items():
        raw, bits = pair(key, value)
        packed.append(raw)
        signature |= bits
    return _U64.pack(signature) + b"".join(packed)


def has_several_pairs(filters: bytes) -> bool:
    """Return whether the result of `encode_filters` has more than one pair."""
    first = _U64.size
    return len(filters) > first + _U16.size + int.from_bytes(filters[first : first + _U16.size])


def name(id_: bytes, exclusive_value: bytes | None) -> bytes:
    """Return the name that identifies a message within its queue.

    The name is the id. In an exclusive queue, the exclusive value precedes the id.
    """
    if exclusive_value is None:
        return id_
    return _U16.pack(len(exclusive_value)) + exclusive_value + id_


def split_name(name_: bytes, exclusive: bool) -> tuple[str, str | None]:
    """Return the id and the exclusive value of a name. The value is None unless the queue is ``exclusive``."""
    if not exclusive:
        return name_.decode(), None
    end = 2 + _U16.unpack_from(name_)[0]
    return name_[end:].decode(), name_[2:end].decode()
