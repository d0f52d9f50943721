"""The form of the requests of one RPC: how many items and fields a valid request can have.

A parsed field can need fifty times the memory of its bytes. So the fields of a large request are counted
on its bytes, before the request is parsed, up to the number of fields that a valid request can have. The fields of a
small request are not counted, as N fields take at least 2 N bytes, except in three cases:

- It can have many entries of a map. A parser finds keys by their hash, and the time for N keys of one hash grows with
  the square of N. Anybody can compute the hash of a number. The hash of a text depends on a secret of the process, but
  it has only 28 random bits.
- It can have many items. Each of them becomes an object.
- It has a list inside a message: after the parse, only the items of the request's own lists are counted. The message
  must then occur once, as all encoders write it.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.rpc.field_walk import (
    KEY_NUMBER,
    KEY_TEXT,
    LENGTH_DELIMITED,
    LONG_FIELDS,
    VALUE_TEXT,
    MessageForm,
    count_fields,
)
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
# A batch has many more entries of maps than messages, so fewer of the bytes of an entry are left out of the walk.
_UNCOUNTED_ENTRY_BYTES: Final = 40
_ENTRY_FIELDS: Final = 2
# A parser takes less than 10 ms for as many entries of maps, whatever their keys are.
_UNCOUNTED_ENTRIES: Final = 1_200
# A parser takes 0.3 ms for as many empty items. A lease has other bytes, too, that can begin a lease.
_UNCOUNTED_ITEMS: Final = 4 * limits.BATCH_ITEMS
# The walk over as many fields takes less than 15 ms.
_FEW_FIELDS: Final = 8_000
# In valid requests, only sizes from 16 KiB on have three bytes: those of a text and of the message that contains it.
_LONG_SIZES: Final = 2 * limits.REQUEST_BYTES // (1 << 14)
_LONG_TEXTS: Final = ("error",)


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
        self.fields_max = self._form.fields_max + _SPARE_FIELDS + LONG_FIELDS * _LONG_SIZES
        # The bytes with which entries of maps, or the items of a list, begin, and the number that is not counted.
        self._first_bytes = [
            (sorted(_first_bytes_of_maps(self._form)), _UNCOUNTED_ENTRIES),
            *((_first_bytes(tag), _UNCOUNTED_ITEMS) for tag, (_, maximum) in self._form.lists.items() if maximum > 1),
        ]
        self._has_inner_list = any(map(_has_list, self._form.inner.values()))

    def check_size(self, raw: bytes) -> None:
        """Raise InvalidArgument if the request has more bytes than a valid one."""
        if len(raw) > self._bytes_max:
            raise InvalidArgument(f"the request has {len(raw):,} bytes, and at most {self._bytes_max:,} are allowed")

    def has_few_fields(self, raw: bytes) -> bool:
        """Return whether a large request has so few fields that its event loop can parse it: `parse` need not count
        them again. Raises InvalidArgument as `check_fields` does.
        """
        try:
            return count_fields(raw, 0, len(raw), self._form, min(_FEW_FIELDS, self.fields_max)) >= 0
        except IndexError:
            return True

    def parse(self, raw: bytes, *, has_few_fields: bool = False) -> Any:
        """Return the request. Raises InvalidArgument if the bytes are not a request, or have too many items or fields.

        Items in excess are found before anything reads the items. ``has_few_fields``: the fields are already counted.
        """
        self.check_size(raw)
        if not has_few_fields and self._must_be_counted(raw):
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

    def _must_be_counted(self, raw: bytes) -> bool:
        """Return False only if the request is small, without a list inside a message, and its maps and each of its
        lists have few entries and items. Other bytes than those that begin an item can be the same.
        """
        return (
            len(raw) > limits.UNCOUNTED_REQUEST_BYTES
            or self._has_inner_list
            or any(len(raw) > few and sum(map(raw.count, first)) > few for first, few in self._first_bytes)
        )

    def check_fields(self, raw: bytes) -> None:
        """Raise InvalidArgument if the bytes have more items or fields than a valid request can have.

        Bytes that are not a request may pass: the parser finds them.
        """
        try:
            left = count_fields(raw, 0, len(raw), self._form, self.fields_max)
        except IndexError:
            # The bytes end within a field.
            return
        if left < 0:
            raise InvalidArgument(
                f"the request has more than {self.fields_max:,} fields, and no valid {self._name} has as many"
            )


def _form_of(message: Descriptor) -> MessageForm:
    lists, inner, packed, texts = {}, {}, set(), set()
    single_max, fields_max = _SPARE_FIELDS, 0
    for field in message.fields:
        tag = field.number << 3 | LENGTH_DELIMITED
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
    return MessageForm(message.name, lists, inner, frozenset(packed), single_max, fields_max, frozenset(texts))


def _has_list(form: MessageForm) -> bool:
    """Return whether the message or one inside it has a list, other than a map."""
    return any(maximum > 1 for _, maximum in form.lists.values()) or any(map(_has_list, form.inner.values()))


def _first_bytes(tag: int) -> list[int]:
    """Return the bytes with which the tag can begin. A tag may have more bytes than it needs, and then its first byte
    is larger by 128.
    """
    return [tag & 127, tag & 127 | 128]


def _first_bytes_of_maps(form: MessageForm) -> set[int]:
    """Return the bytes with which a tag of a map can begin, in the message and in its inner messages."""
    found: set[int] = set()
    for tag, inside in form.inner.items():
        found.update(_first_bytes(tag) if inside.key_tag else _first_bytes_of_maps(inside))
    return found


def _entry_form(entry: Descriptor) -> MessageForm:
    """Return the form of the entries of a map. No version adds fields to them."""
    if any(field.type == FieldDescriptor.TYPE_MESSAGE for field in entry.fields):
        raise TypeError(f"the walk cannot count the fields of the values of {entry.full_name}")
    key_tag = KEY_TEXT if entry.fields_by_number[1].type == FieldDescriptor.TYPE_STRING else KEY_NUMBER
    texts = frozenset({key_tag, VALUE_TEXT} - {KEY_NUMBER})
    return MessageForm(
        entry.name, {}, {}, frozenset(), _ENTRY_FIELDS, _ENTRY_FIELDS, texts, _UNCOUNTED_ENTRY_BYTES, key_tag
    )


_LENGTH_DELIMITED_TYPES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_VARINT_TYPES: Final = (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
