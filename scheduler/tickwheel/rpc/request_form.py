"""The form of the requests of one RPC: how many items and fields a valid request can have.

A parsed field can need fifty times the memory of its bytes. So the fields of a large request are counted
on its bytes, before the request is parsed, up to the number of fields that a valid request can have. The fields of a
small request are not counted, as N fields take at least 2 N bytes, unless it can have many entries of a map: a parser
finds keys by their hash, and the time for N keys of one hash grows with the square of N. Anybody can compute the hash
of a number. The hash of a text depends on a secret of the process, but it has only 28 random bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.storage.record import State

# The maximum number of items of each repeated field of the requests, in which a map counts as a repeated field. The
# metadata of a message may have two pairs for its trace, in addition to the pairs of its content.
ITEMS_MAX: Final[Mapping[str, int]] = {
    "EnqueueBatchRequest.messages": limits.BATCH_ITEMS,
    "EnqueueStreamRequest.messages": limits.BATCH_ITEMS,
    "NewMessage.metadata": limits.PAIRS_MAX + 2,
    "DequeueRequest.where": limits.PAIRS_MAX,
    "DequeueBatchRequest.requests": limits.DEQUEUE_REQUESTS,
    "AwaitMessagesRequest.queues": limits.AWAITED_QUEUES,
    "DequeueStreamRequest.where": limits.PAIRS_MAX,
    "CompleteRequest.leases": limits.BATCH_ITEMS,
    "CompleteRequest.results": limits.BATCH_ITEMS,
    "FailRequest.items": limits.FAIL_ITEMS,
    "ReleaseRequest.leases": limits.BATCH_ITEMS,
    "ExtendRequest.leases": limits.BATCH_ITEMS,
    "CancelRequest.ids": limits.BATCH_ITEMS,
    "Keys.keys": limits.PAIRS_MAX,
    "GetDepthRequest.where": limits.PAIRS_MAX,
    "PurgeQueueRequest.states": len(State),
}
# Fields that a valid request may have in addition: for example, fields that only a newer version knows.
_SPARE_FIELDS: Final = 100
# Inside a message of a request, the last bytes are not walked: they contain few fields. A batch has many more entries
# of maps than messages, so fewer of the bytes of an entry may be left out.
_UNCOUNTED_BYTES: Final = 128
_UNCOUNTED_ENTRY_BYTES: Final = 40
_ENTRY_FIELDS: Final = 2
# A parser takes less than 10 ms for as many entries of maps, whatever their keys are.
_UNCOUNTED_ENTRIES: Final = 1_200
# The walk over as many fields takes less than 15 ms.
_FEW_FIELDS: Final = 8_000
# A tag or a size of three bytes or more takes as long as this many fields more. In valid requests, only sizes from
# 16 KiB on have as many bytes: those of a text and of the message that contains it.
_LONG_FIELDS: Final = 3
_LONG_SIZES: Final = 2 * limits.REQUEST_BYTES // (1 << 14)
# A check of a text of megabytes takes long.
_TEXT_BYTES: Final = 1 << 14
_LONG_TEXTS: Final = ("error",)
_VARINT, _FIXED64, _LENGTH_DELIMITED, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class _MessageForm:
    """The fields of a message by their tags: lists, and inner messages, to which the entries of maps belong. An inner
    message that is not in a list counts as a list with one item.

    ``packed`` has the tags of the lists whose items can be packed into one field. ``single_max`` is the number of
    fields, including unknown ones, that a valid message can have in addition to the items of its lists. ``fields_max``
    is the number of all its fields, including those of its inner messages, but for the fields of the entries of maps.
    ``texts`` has the tags of the texts that are short in a valid message: all but those of errors.
    The last ``uncounted`` bytes of the message are not walked. ``key_tag`` is the tag of the key, for the entries of
    maps, and otherwise 0.
    """

    name: str
    lists: dict[int, tuple[str, int]]
    inner: dict[int, "_MessageForm"]
    packed: frozenset[int]
    single_max: int
    fields_max: int
    texts: frozenset[int] = frozenset()
    uncounted: int = _UNCOUNTED_BYTES
    key_tag: int = 0

    @property
    def too_many_singles(self) -> str:
        return (
            f"{self.name}: more than {self.single_max} fields in addition to the items of its lists, and no valid one"
            " has as many"
        )


class RequestForm:
    """The form of one class of requests."""

    def __init__(self, kind: Any, bytes_max: int | None = None) -> None:
        """``kind`` is the class. By default, the size of a request is limited to `UNCOUNTED_REQUEST_BYTES` if all its
        fields are short: if the request has neither a list nor a message, but perhaps a map.

        Raises KeyError if `ITEMS_MAX` has no row for one of the repeated fields.
        """
        self._kind = kind
        self._name = kind.DESCRIPTOR.name
        self._form = _form_of(kind.DESCRIPTOR)
        repeated = (field for field in kind.DESCRIPTOR.fields if field.is_repeated)
        self._items_max = {field: ITEMS_MAX[f"{self._name}.{field.name}"] for field in repeated}
        has_long_fields = self._form.lists or not all(form.key_tag for form in self._form.inner.values())
        self._bytes_max = bytes_max or (limits.REQUEST_BYTES if has_long_fields else limits.UNCOUNTED_REQUEST_BYTES)
        self.fields_max = self._form.fields_max + _SPARE_FIELDS + _LONG_FIELDS * _LONG_SIZES
        self._map_bytes = sorted(_first_bytes_of_maps(self._form))

    def check_size(self, raw: bytes) -> None:
        """Raise InvalidArgument if the request has more bytes than a valid one."""
        if len(raw) > self._bytes_max:
            raise InvalidArgument(f"the request has {len(raw):,} bytes, and at most {self._bytes_max:,} are allowed")

    def has_few_fields(self, raw: bytes) -> bool:
        """Return whether a large request has so few fields that its event loop can parse it: `parse` need not count
        them again. Raises InvalidArgument as `check_fields` does.
        """
        try:
            return _count(raw, 0, len(raw), self._form, min(_FEW_FIELDS, self.fields_max)) >= 0
        except IndexError:
            return True

    def parse(self, raw: bytes, *, has_few_fields: bool = False) -> Any:
        """Return the request. Raises InvalidArgument if the bytes are not a request, or have too many items or fields.

        Items in excess are found before anything reads the items. ``has_few_fields``: the fields are already counted.
        """
        self.check_size(raw)
        if not has_few_fields and (len(raw) > limits.UNCOUNTED_REQUEST_BYTES or self._may_have_many_entries(raw)):
            self.check_fields(raw)
        try:
            request = self._kind.FromString(raw)
        except DecodeError as error:
            raise InvalidArgument(f"the request is not a valid {self._kind.DESCRIPTOR.full_name}: {error}") from error
        for field, maximum in self._items_max.items():
            if (count := len(getattr(request, field.name))) > maximum:
                items = f"pairs of {field.name}" if is_map(field) else field.name
                raise InvalidArgument(f"a call takes at most {maximum} {items}, not {count}")
        return request

    def _may_have_many_entries(self, raw: bytes) -> bool:
        """Return False only if the maps of the request have at most `_UNCOUNTED_ENTRIES` entries in all.

        Each entry begins with one of a few bytes, but other bytes of the request can be the same.
        """
        return len(raw) > _UNCOUNTED_ENTRIES and sum(map(raw.count, self._map_bytes)) > _UNCOUNTED_ENTRIES

    def check_fields(self, raw: bytes) -> None:
        """Raise InvalidArgument if the bytes have more items or fields than a valid request can have.

        Bytes that are not a request may pass: the parser finds them.
        """
        try:
            left = _count(raw, 0, len(raw), self._form, self.fields_max)
        except IndexError:
            # The bytes end within a field.
            return
        if left < 0:
            raise InvalidArgument(
                f"the request has more than {self.fields_max:,} fields, and no valid {self._name} has as many"
            )


def _form_of(message: Descriptor) -> _MessageForm:
    lists, inner, packed, texts = {}, {}, set(), set()
    single_max, fields_max = _SPARE_FIELDS, 0
    for field in message.fields:
        tag = field.number << 3 | _LENGTH_DELIMITED
        items = 1
        if field.is_repeated:
            items = ITEMS_MAX[f"{message.name}.{field.name}"]
            if field.type in _VARINT_TYPES:
                packed.add(tag)
            elif field.type not in _LENGTH_DELIMITED_TYPES:
                raise TypeError(f"the walk cannot count the items of {field.full_name}")
            if not is_map(field):
                lists[tag] = field.name, items
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            # A parser merges repetitions of a message, and the entries of their maps: see `_UNCOUNTED_ENTRIES`.
            lists[tag] = field.name, 1
        if field.type == FieldDescriptor.TYPE_STRING and field.name not in _LONG_TEXTS:
            texts.add(tag)
        if tag not in lists:
            single_max += items
        each = 1
        if (kind := field.message_type) is not None:
            inner[tag] = _entry_form(kind) if is_map(field) else _form_of(kind)
            each += 0 if is_map(field) else inner[tag].fields_max
        fields_max += items * each
    return _MessageForm(message.name, lists, inner, frozenset(packed), single_max, fields_max, frozenset(texts))


def _first_bytes_of_maps(form: _MessageForm) -> set[int]:
    """Return the bytes with which a tag of a map can begin, in the message and in its inner messages.

    A tag may have more bytes than it needs, and then its first byte is larger by 128.
    """
    found = set()
    for tag, inside in form.inner.items():
        found |= {tag & 127, tag & 127 | 128} if inside.key_tag else _first_bytes_of_maps(inside)
    return found


def _entry_form(entry: Descriptor) -> _MessageForm:
    """Return the form of the entries of a map. No version adds fields to them."""
    if any(field.type == FieldDescriptor.TYPE_MESSAGE for field in entry.fields):
        raise TypeError(f"the walk cannot count the fields of the values of {entry.full_name}")
    key_tag = _KEY_TEXT if entry.fields_by_number[1].type == FieldDescriptor.TYPE_STRING else _KEY_NUMBER
    texts = frozenset({key_tag, _VALUE_TEXT} - {_KEY_NUMBER})
    return _MessageForm(
        entry.name, {}, {}, frozenset(), _ENTRY_FIELDS, _ENTRY_FIELDS, texts, _UNCOUNTED_ENTRY_BYTES, key_tag
    )


_LENGTH_DELIMITED_TYPES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_VARINT_TYPES: Final = (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
# The tags of a map's key, which is a text or a number, and of its value.
_KEY_TEXT: Final = 1 << 3 | _LENGTH_DELIMITED
_KEY_NUMBER: Final = 1 << 3 | _VARINT
_VALUE_TEXT: Final = 2 << 3 | _LENGTH_DELIMITED
_TOO_MANY_ITEMS: Final = "a call takes at most {1} {0}, and the request has more"
# Every byte of a varint but the last one is one of these.
_CONTINUED_BYTES: Final = bytes(range(128, 256))


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _count(raw: bytes, position: int, end: int, form: _MessageForm, left: int, uncounted: int = 0) -> int:
    """Walk over the fields of a message, and return ``left`` minus their number. Stop if the result is negative.

    Raises InvalidArgument if a list has too many items, or a message too many other fields.
    """
    lists, inner = form.lists, form.inner
    counts = dict.fromkeys(lists, 0) if lists else {}
    singles_left, is_entry = form.single_max, form.key_tag != 0
    groups = 0
    while end - position > uncounted and left >= 0:
        left -= 1
        tag = raw[position]
        position += 1
        if tag > 127:
            # Most tags have one or two bytes.
            if raw[position] < 128:
                tag += (raw[position] << 7) - 128
                position += 1
            else:
                tag, position = _read_varint(raw, position - 1)
                left -= _LONG_FIELDS
        if tag not in lists or groups:
            if is_entry and tag not in (form.key_tag, _VALUE_TEXT):
                raise InvalidArgument(f"{form.name}: no valid one has other fields than its key and its value")
            singles_left -= 1
            if singles_left < 0:
                raise InvalidArgument(form.too_many_singles)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            size = raw[position]
            position += 1
            if size > 127:
                # Most sizes have one or two bytes.
                if raw[position] < 128:
                    size += (raw[position] << 7) - 128
                    position += 1
                else:
                    size, position = _read_varint(raw, position - 1)
                    left -= _LONG_FIELDS
            if _TEXT_BYTES < size <= end - position and tag in form.texts:
                raise InvalidArgument(f"{form.name}: a text of {size:,} bytes; no valid one but an error is as long")
            # The fields of a group are not fields of this message.
            if not groups:
                if tag in lists:
                    counts[tag] += 1 if tag not in form.packed else _packed_items(raw[position : position + size])
                    if counts[tag] > lists[tag][1]:
                        raise InvalidArgument(_TOO_MANY_ITEMS.format(*lists[tag]))
                inside = inner.get(tag)
                if inside is not None and size > inside.uncounted:
                    stop = min(position + size, end)
                    # A walk over the usual entries of maps would take three times as long as this comparison.
                    if raw[position] != inside.key_tag or not _is_pair(raw, position, stop):
                        left = _count(raw, position, stop, inside, left, inside.uncounted)
            position += size
        elif kind == _VARINT:
            position = position + 1 if raw[position] < 128 else _skip_varint(raw, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        elif kind == _START_GROUP:
            groups += 1
        elif kind == _END_GROUP:
            groups -= 1
        else:
            return left
    return left


def _is_pair(raw: bytes, position: int, end: int) -> bool:
    """Return whether the entry of a map has a key and a value, or only a key, as programs encode it.

    False for other forms, which are valid, too: they are walked.
    """
    tag, size = raw[position], raw[position + 1]
    if tag == _KEY_TEXT and size < 128:
        position += 2 + size
    elif tag == _KEY_NUMBER and (size < 128 or raw[position + 2] < 128):
        position += 2 if size < 128 else 3
    else:
        return False
    if position + 2 > end:
        return position == end
    if raw[position] != _VALUE_TEXT:
        return False
    size = raw[position + 1]
    position += 2
    if size > 127:
        if raw[position] > 127:
            return False
        size += (raw[position] << 7) - 128
        position += 1
    return position + size == end


def _packed_items(packed: bytes) -> int:
    return len(packed.translate(None, _CONTINUED_BYTES))


def _skip_varint(raw: bytes, position: int) -> int:
    """Return the position after a varint. Raises IndexError if the bytes contain no varint there."""
    for end in range(position + 1, position + 1 + _VARINT_BYTES):
        if raw[end - 1] < 128:
            return end
    raise IndexError


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    """Return a varint and the position after it. Raises IndexError if the bytes contain no varint there."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = raw[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError
