"""The index entries that the scripts keep for a record (`lua/_ready_indexes.lua`), computed from the record."""

from dataclasses import dataclass
from functools import cached_property
from struct import Struct

from tickwheel.model.queue_config import QueueConfig
from tickwheel.storage import record, trace_context
from tickwheel.storage.record import BIAS, PAIRS, Record, State
from tickwheel.storage.timer import Kind, generation

_ORDER = Struct(">QHI")
_RANK = Struct(">HI")
_U16 = Struct(">H")
NOT_EXPLICIT = 2**47


@dataclass(frozen=True)
class ExpectedEntries:
    """A record of a queue, and the index entries of the message: those that it has, or would have in another state."""

    queue: str
    config: QueueConfig
    name: bytes
    record: Record

    @property
    def exclusive(self) -> bool:
        return self.config.exclusive_key is not None

    @property
    def label(self) -> str:
        """The name of the message in findings. No name is the same after a transition, also if the id is used again."""
        id_, value = record.split_name(self.name, self.exclusive)
        suffix = "" if value is None else f" of {value!r}"
        generation = f"incarnation {self.record.incarnation} version {self.record.version}"
        return f"queue {self.queue}, message {id_!r}{suffix} {generation}"

    @property
    def rank(self) -> int:
        return self.record.incarnation + (0 if self.record.explicit_deadline else NOT_EXPLICIT)

    @cached_property
    def order(self) -> bytes:
        return _ORDER.pack(self.record.deadline_ms + BIAS, *divmod(self.rank, 2**32))

    @property
    def ready(self) -> bytes:
        """The member of `ready`; its score is the deadline."""
        return _RANK.pack(*divmod(self.rank, 2**32)) + _U16.pack(self.config.number) + self.name

    @cached_property
    def prefix(self) -> bytes:
        """The start of the message's name and of its member of `waiting`: the exclusive value after its length."""
        return self.name[: 2 + _U16.unpack_from(self.name)[0]]

    @property
    def id(self) -> bytes:
        """The id of a message in an exclusive queue."""
        return self.name[len(self.prefix) :]

    @property
    def waiting(self) -> bytes:
        return self.prefix + self.order + self.id

    @property
    def head_lock(self) -> bytes:
        """The entry of the exclusive value in `locks` while this message is the value's next message (its *head*)."""
        return b"H" + self.order + self.id

    @property
    def leased_lock(self) -> bytes:
        """The entry of the exclusive value in `locks` while this message holds the value."""
        return b"R" + self.id

    @property
    def holds_value(self) -> bool:
        return self.record.state is State.RUNNING or self.record.holds_exclusive_value

    @cached_property
    def pairs(self) -> list[bytes]:
        """The indexed metadata pairs, in the format with which index entries start."""
        indexed = self.config.indexed_keys
        return [
            record.pair(key, value)[0]
            for key, value in trace_context.strip_trace_context(self.record.metadata).items()
            if indexed is None or key in indexed
        ]

    @cached_property
    def signature(self) -> bytes:
        return record.pairs_section(self.record.metadata, self.config.indexed_keys)[:8]

    def pair_entry(self, pair: bytes) -> bytes:
        """Return the member of `pairs` for one pair."""
        return pair + self.order + self.signature + self.name

    def value_pair_entry(self, pair: bytes) -> bytes:
        """Return the member of `vpairs` for one pair."""
        return self.prefix + pair + self.order + self.signature + self.id

    def timer(self) -> tuple[Kind, int] | None:
        """Return the kind and generation of the timer that the message waits for, or None for a Pending message."""
        state = self.record.state
        if state is State.PENDING:
            return None
        late = Kind.EXPIRE if self.holds_value else Kind.RETIRE
        kind = Kind.PROMOTE if state is State.INVISIBLE else late
        return kind, generation(self.record.incarnation, self.record.version)


def expected_entries(queue: str, config: QueueConfig, name: bytes, stored: bytes) -> ExpectedEntries:
    """Decode a record. Raises ValueError if the scripts would not write it this way."""
    try:
        decoded = record.decode(stored)
        is_canonical = record.encode(decoded, config.indexed_keys)[0] == stored
        record.split_name(name, config.exclusive_key is not None)
    except Exception as error:
        raise ValueError(f"its name or record cannot be read ({error!r}): {stored.hex()}") from error
    if not is_canonical:
        raise ValueError(f"its record is not as the scripts write it: {stored.hex()}")
    if bool(decoded.flags & PAIRS) != bool(decoded.metadata):
        raise ValueError(f"its record has an empty section of pairs: {stored.hex()}")
    return ExpectedEntries(queue, config, name, decoded)
