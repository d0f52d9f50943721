"""A walk over the bytes of a request, which counts its items and fields before anything parses the request."""

from dataclasses import dataclass
from typing import Final

from tickwheel.errors import InvalidArgument

# A tag or a size of three bytes or more takes as long as this many fields more.
LONG_FIELDS: Final = 3
# Inside a message of a request, the last bytes are not walked: they contain few fields.
_UNCOUNTED_BYTES: Final = 128
# A check of a text of megabytes takes long.
_TEXT_BYTES: Final = 1 << 14
_VARINT, _FIXED64, LENGTH_DELIMITED, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_VARINT_BYTES: Final = 10
# The tags of a map's key, which is a text or a number, and of its value.
KEY_TEXT: Final = 1 << 3 | LENGTH_DELIMITED
KEY_NUMBER: Final = 1 << 3 | _VARINT
VALUE_TEXT: Final = 2 << 3 | LENGTH_DELIMITED
_TOO_MANY_ITEMS: Final = "a call takes at most {1} {0}, and the request has more"
# Every byte of a varint but the last one is one of these.
_CONTINUED_BYTES: Final = bytes(range(128, 256))


@dataclass(frozen=True, slots=True)
class MessageForm:
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
    inner: dict[int, "MessageForm"]
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


def count_fields(raw: bytes, position: int, end: int, form: MessageForm, left: int, uncounted: int = 0) -> int:
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
                left -= LONG_FIELDS
        if tag not in lists or groups:
            if is_entry and tag not in (form.key_tag, VALUE_TEXT):
                raise InvalidArgument(f"{form.name}: no valid one has other fields than its key and its value")
            singles_left -= 1
            if singles_left < 0:
                raise InvalidArgument(form.too_many_singles)
        kind = tag & 7
        if kind == LENGTH_DELIMITED:
            size = raw[position]
            position += 1
            if size > 127:
                # Most sizes have one or two bytes.
                if raw[position] < 128:
                    size += (raw[position] << 7) - 128
                    position += 1
                else:
                    size, position = _read_varint(raw, position - 1)
                    left -= LONG_FIELDS
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
                    if raw[position] != inside.key_tag or not is_pair(raw, position, stop):
                        left = count_fields(raw, position, stop, inside, left, inside.uncounted)
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


def is_pair(raw: bytes, position: int, end: int) -> bool:
    """Return whether the entry of a map has a key and a value, or only a key, as programs encode it.

    False for other forms, which are valid, too: they are walked.
    """
    tag, size = raw[position], raw[position + 1]
    if tag == KEY_TEXT and size < 128:
        position += 2 + size
    elif tag == KEY_NUMBER and (size < 128 or raw[position + 2] < 128):
        position += 2 if size < 128 else 3
    else:
        return False
    if position + 2 > end:
        return position == end
    if raw[position] != VALUE_TEXT:
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
