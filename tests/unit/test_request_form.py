"""The form of requests: items and fields in excess are found on the bytes, and no valid request is rejected."""

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, strategies as st

from bench.harness.large_requests import CHEAP, hostile_requests, legal_requests, varint
from tickwheel import InvalidArgument, limits
from tickwheel.rpc.field_walk import is_pair
from tickwheel.rpc.methods import METHODS
from tickwheel.rpc.request_form import _UNCOUNTED_ENTRIES, ITEMS_MAX, RequestForm, is_map
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

pytestmark = pytest.mark.unit

FORMS = {name: RequestForm(method.request) for name, method in METHODS.items()}
REPEATED = [
    (name, field) for name, method in METHODS.items() for field in method.request.DESCRIPTOR.fields if field.is_repeated
]
LISTS = [(name, field.name) for name, field in REPEATED if not is_map(field)]
MAPS = [(name, field.name) for name, field in REPEATED if is_map(field)]


@pytest.mark.parametrize("name", METHODS)
def test_hostile_fields_of_every_rpc_are_found_before_the_request_is_parsed(name: str) -> None:
    for shape, request in hostile_requests(METHODS[name], "tw", "jobs"):
        if not shape.startswith(CHEAP):
            with pytest.raises(InvalidArgument, match=r"at most|no valid"):
                FORMS[name].check_fields(request)


@pytest.mark.parametrize("name", METHODS)
def test_no_request_takes_much_more_memory_than_its_bytes_once_it_is_parsed(name: str) -> None:
    # A parsed field needs at most 100 bytes, and the fields of a small request are not counted.
    assert FORMS[name].fields_max * 100 <= limits.REQUEST_BYTES


@pytest.mark.parametrize(("shape", "name", "request_"), [*legal_requests("tw", "jobs", 0)])
def test_the_largest_valid_requests_are_accepted(shape: str, name: str, request_: bytes) -> None:
    assert FORMS[name].parse(request_).namespace == "tw"


@pytest.mark.parametrize(("name", "field"), LISTS)
@pytest.mark.parametrize("padding", [0, limits.UNCOUNTED_REQUEST_BYTES], ids=["small", "large"])
def test_a_list_has_at_most_its_maximum_of_items(name: str, field: str, padding: int) -> None:
    method, form = METHODS[name], FORMS[name]
    [(_, maximum)] = form._form.lists.values()
    descriptor = method.request.DESCRIPTOR.fields_by_name[field]
    item: Any = {} if descriptor.message_type else 1 if descriptor.enum_type else "x"
    # The field 31 is unknown.
    unknown = b"\xfa\x01" + calls.GetMessageRequest(id="x" * padding).SerializeToString()[1:] if padding else b""
    assert len(getattr(form.parse(method.request(**{field: [item] * maximum}).SerializeToString() + unknown), field))
    with pytest.raises(InvalidArgument, match=rf"a call takes at most {maximum} {field}"):
        form.parse(method.request(**{field: [item] * (maximum + 1)}).SerializeToString() + unknown)


@pytest.mark.parametrize(("name", "field"), MAPS)
def test_a_map_has_at_most_its_maximum_of_pairs(name: str, field: str) -> None:
    kind, form = METHODS[name].request, FORMS[name]
    maximum = ITEMS_MAX[f"{kind.DESCRIPTOR.name}.{field}"]
    key = kind.DESCRIPTOR.fields_by_name[field].message_type.fields_by_name["key"]

    def encode(pairs: int) -> bytes:
        keys = map(int if key.type == FieldDescriptor.TYPE_INT32 else str, range(pairs))
        return bytes(kind(**{field: dict.fromkeys(keys, "x")}).SerializeToString())

    assert len(getattr(form.parse(encode(maximum)), field)) == maximum
    with pytest.raises(InvalidArgument, match=f"a call takes at most {maximum} pairs of {field}, not {maximum + 1}"):
        form.parse(encode(maximum + 1))


@pytest.mark.parametrize("item", [b"\x01", b"\xac\x02", b"\xff\xff\xff\xff\x0f"], ids=["1 byte", "2 bytes", "5 bytes"])
def test_each_item_of_a_packed_list_counts(item: bytes) -> None:
    form = FORMS["PurgeQueue"]
    [(tag, (_, maximum))] = form._form.lists.items()
    assert tag in form._form.packed

    def request(*counts: int) -> bytes:
        return b"".join(bytes([tag, count * len(item)]) + item * count for count in counts)

    form.check_fields(request(maximum))
    form.check_fields(request(maximum - 1, 1))
    for counts in ((maximum + 1,), (maximum, 1), (20,)):
        with pytest.raises(InvalidArgument, match=rf"a call takes at most {maximum} states, and the request has more"):
            form.check_fields(request(*counts))


@pytest.mark.parametrize("name", METHODS)
def test_a_text_that_is_not_utf_8_is_an_invalid_argument_of_every_field(name: str) -> None:
    for field in METHODS[name].request.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING:
            with pytest.raises(InvalidArgument, match="is not a valid"):
                FORMS[name].parse(bytes([field.number << 3 | 2, 2]) + b"\xff\xfe")


def test_items_inside_a_message_are_counted_although_the_message_is_one_item() -> None:
    message = messages.NewMessage(metadata={str(n): "" for n in range(30_000)})
    request = calls.EnqueueBatchRequest(messages=[message]).SerializeToString()
    with pytest.raises(InvalidArgument, match=r"NewMessage: more than \d+ fields"):
        FORMS["EnqueueBatch"].parse(request)


def test_unknown_fields_of_a_newer_client_are_accepted_and_more_are_rejected_at_once() -> None:
    # A request in which each message has a few fields that this version does not know, with numbers of two bytes.
    unknown = b"\xf8\x01\x01"
    message = messages.NewMessage(id="x", payload=b"p" * 200).SerializeToString()
    form, request = FORMS["EnqueueBatch"], calls.EnqueueBatchRequest(namespace="tw")
    for _ in range(limits.BATCH_ITEMS):
        request.messages.add().ParseFromString(message + unknown * 5)
    raw = request.SerializeToString()
    assert len(form.parse(raw + unknown * 100).messages) == limits.BATCH_ITEMS
    with pytest.raises(InvalidArgument, match=r"EnqueueBatchRequest: more than \d+ fields"):
        form.parse(raw + unknown * 110)


def test_a_request_with_short_fields_only_is_small() -> None:
    request = calls.DequeueRequest(worker="x" * limits.UNCOUNTED_REQUEST_BYTES).SerializeToString()
    with pytest.raises(InvalidArgument, match="and at most 65,536 are allowed"):
        FORMS["Dequeue"].parse(request)


def entry(*parts: bytes) -> bytes:
    """Return a message with this entry of its metadata, which is long enough to be checked."""
    body = b"".join(parts)
    assert len(body) > 40
    return b"\x1a" + varint(len(body)) + body


KEY, VALUE, UNKNOWN = b"\x0a\x03key", b"\x12\x80\x01" + b"v" * 128, b"\x78\x01"


@pytest.mark.parametrize(
    "parts",
    [
        (KEY, VALUE),
        (VALUE, KEY),
        (VALUE,),
        (b"\x0a\x40" + b"k" * 64,),
        # Sizes need not have the fewest bytes.
        (b"\x0a\x83\x00key", VALUE),
        (KEY, b"\x12\x80\x81\x00" + b"v" * 128),
    ],
    ids=["key and value", "value and key", "value", "key", "long size of the key", "long size of the value"],
)
def test_all_forms_of_an_entry_of_a_map_are_accepted(parts: tuple[bytes, ...]) -> None:
    padding = messages.NewMessage(payload=b"p" * limits.UNCOUNTED_REQUEST_BYTES).SerializeToString()
    message = padding + entry(*parts)
    request = FORMS["Enqueue"].parse(b"\x1a" + varint(len(message)) + message)
    assert len(request.message.metadata) == 1


@pytest.mark.parametrize(
    "hidden",
    [
        KEY + UNKNOWN * 80,
        KEY + VALUE + UNKNOWN * 40,
        UNKNOWN * 40 + KEY + VALUE,
        # A size of zero with too many bytes, which could be taken for 128.
        b"\x0a\x80\x00" + UNKNOWN * 63 + b"\x00" + VALUE,
        # A size of 5 with too many bytes, which could be taken for 16,389.
        KEY + b"\x12\x85\x80" + (b"\x00vvvvv" + UNKNOWN * 9_000)[: 5 + (1 << 14)],
    ],
    ids=["after the key", "after the value", "before the key", "in the size of the key", "in the size of the value"],
)
def test_fields_in_excess_in_an_entry_of_a_map_are_found(hidden: bytes) -> None:
    message = entry(hidden)
    with pytest.raises(InvalidArgument, match="MetadataEntry: "):
        FORMS["Enqueue"].check_fields(b"\x1a" + varint(len(message)) + message)


def test_fields_in_excess_after_a_long_number_that_is_the_key_are_found() -> None:
    # The last byte of the key could be taken for the tag of the value, and the next tag for its size.
    body = b"\x08\x80\x80\x12" + (UNKNOWN * 61)[:121]
    with pytest.raises(InvalidArgument, match="ResultsEntry: "):
        FORMS["Complete"].check_fields(b"\x22" + varint(len(body)) + body)


def maps_of(message: Descriptor, *tags: int) -> list[tuple[int, ...]]:
    """Return the tags that lead to each map of a message."""
    found = []
    for field in message.fields:
        if field.message_type is not None:
            path = (*tags, field.number << 3 | 2)
            found += [path] if is_map(field) else maps_of(field.message_type, *path)
    return found


MAPS = [(name, path) for name, method in METHODS.items() for path in maps_of(method.request.DESCRIPTOR)]


def with_entries(path: tuple[int, ...], count: int, *, long_tags: bool = False) -> bytes:
    """Return a request with entries of a map, and nothing else. No entry has a key, so their keys are the same."""
    *outer, tag = path
    first = bytes([tag | 128, 0]) if long_tags else bytes([tag])
    body = (first + b"\x06\x12\x04abcd") * count
    for each in reversed(outer):
        body = bytes([each]) + varint(len(body)) + body
    return body


@pytest.mark.parametrize("long_tags", [False, True], ids=["short tags", "long tags"])
@pytest.mark.parametrize(("name", "path"), MAPS, ids=lambda part: part if isinstance(part, str) else "")
def test_many_entries_of_a_map_are_counted_in_a_small_request(
    name: str, path: tuple[int, ...], long_tags: bool
) -> None:
    # Many keys of the same hash would take a parser 0.2 s.
    form = FORMS[name]
    few, many = (with_entries(path, count, long_tags=long_tags) for count in (_UNCOUNTED_ENTRIES - 10, 7_000))
    assert len(many) <= limits.UNCOUNTED_REQUEST_BYTES
    form.parse(few)
    with pytest.raises(InvalidArgument, match=r"more than \d+ fields in addition"):
        form.parse(many)


@pytest.mark.parametrize("long_tags", [False, True], ids=["short tags", "long tags"])
@pytest.mark.parametrize(("name", "field"), LISTS)
def test_many_items_in_a_small_request_are_counted_before_it_is_parsed(name: str, field: str, long_tags: bool) -> None:
    descriptor = METHODS[name].request.DESCRIPTOR.fields_by_name[field]
    tag = descriptor.number << 3 | 2
    first = bytes([tag | 128, 0]) if long_tags else bytes([tag])
    # The items are empty, or one byte of a packed list.
    many = (first + (b"\x01\x01" if descriptor.enum_type else b"\0")) * 16_000
    form = RequestForm(METHODS[name].request)
    form._kind = None  # It cannot be parsed.
    assert len(many) <= limits.UNCOUNTED_REQUEST_BYTES
    with pytest.raises(InvalidArgument, match=rf"a call takes at most \d+ {field}, and the request has more"):
        form.parse(many)


def test_the_items_of_a_list_inside_a_small_request_are_counted_before_it_is_parsed() -> None:
    form = RequestForm(METHODS["CreateQueue"].request)
    request = form._kind(queue="jobs", settings={"indexed": {"keys": ["a"] * 1_000}})
    form._kind = None
    with pytest.raises(InvalidArgument, match=f"a call takes at most {limits.PAIRS_MAX} keys, and the request has"):
        form.parse(request.SerializeToString())


def test_create_queue_alone_has_a_list_inside_a_message_and_its_longest_keys_are_accepted() -> None:
    assert [name for name, form in FORMS.items() if form._has_inner_list] == ["CreateQueue"]
    keys = ["k" * (limits.PAIR_KEY_BYTES - 2) + f"{n:02}" for n in range(limits.PAIRS_MAX)]
    request = METHODS["CreateQueue"].request(queue="jobs", settings={"indexed": {"keys": keys}})
    assert FORMS["CreateQueue"].parse(request.SerializeToString()) == request


TEXTS: list[tuple[str, Any]] = [
    ("EnqueueBatch", {"namespace": "a" * 70_000}),
    ("Release", {"request_id": "-_" * 2_000_000 + "a:1"}),
    ("CreateQueue", {"settings": {"sink": "kafka://" + "a" * 70_000}}),
    ("DequeueBatch", {"requests": [{"request_id": "a" * 70_000}]}),
    ("Complete", {"leases": [{"id": "a" * 70_000}]}),
    ("EnqueueBatch", {"messages": [{"id": "a" * 70_000}]}),
    ("Cancel", {"ids": ["a" * 70_000]}),
    ("AwaitMessages", {"queues": ["a" * 70_000]}),
    ("Enqueue", {"message": {"metadata": {"a" * 70_000: ""}}}),
    ("EnqueueBatch", {"messages": [{"metadata": {"a": "b" * 70_000}}]}),
    ("DequeueBatch", {"requests": [{"where": {"a": "b" * 70_000}}]}),
    ("Complete", {"results": {1: "a" * 70_000}}),
]


@pytest.mark.parametrize(("name", "fields"), TEXTS, ids=[name for name, _ in TEXTS])
def test_a_text_that_is_longer_than_any_valid_one_is_found_before_anything_reads_it(
    name: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match="no valid one but an error is as long"):
        FORMS[name].parse(METHODS[name].request(**fields).SerializeToString())


def test_an_error_may_be_long_and_so_may_a_payload() -> None:
    FORMS["Fail"].parse(calls.FailRequest(items=[{"error": "e" * 200_000}]).SerializeToString())
    FORMS["Enqueue"].parse(calls.EnqueueRequest(message={"payload": bytes(200_000)}).SerializeToString())


@pytest.mark.parametrize("padding", [0, limits.UNCOUNTED_REQUEST_BYTES], ids=["small", "large"])
def test_a_message_occurs_once_because_a_parser_would_merge_its_maps(padding: int) -> None:
    part = calls.EnqueueRequest(
        message=messages.NewMessage(metadata={f"k{n}": "v" for n in range(100)}, payload=bytes(padding))
    ).SerializeToString()
    with pytest.raises(InvalidArgument, match="a call takes at most 1 message, and the request has more"):
        FORMS["Enqueue"].parse(part * 15)


def test_the_entries_of_the_largest_small_batch_are_accepted() -> None:
    pairs = {f"k{n}": "v" for n in range(16)}
    request = calls.EnqueueBatchRequest(messages=[messages.NewMessage(metadata=pairs)] * 420)
    raw = request.SerializeToString()
    assert len(raw) <= limits.UNCOUNTED_REQUEST_BYTES
    assert len(FORMS["EnqueueBatch"].parse(raw).messages) == 420


def test_a_request_with_few_fields_is_not_counted_twice() -> None:
    few = calls.EnqueueBatchRequest(messages=[messages.NewMessage(payload=bytes(100))] * 1_000).SerializeToString()
    pairs = {f"k{n}": "v" * 40 for n in range(16)}
    many = calls.EnqueueBatchRequest(messages=[messages.NewMessage(metadata=pairs)] * 1_000).SerializeToString()
    form = FORMS["EnqueueBatch"]
    assert (form.has_few_fields(few), form.has_few_fields(many)) == (True, False)
    assert len(form.parse(few, has_few_fields=True).messages) == len(form.parse(many).messages) == 1_000


@pytest.mark.parametrize("size", range(1, 11))
def test_fields_after_a_long_number_are_counted(size: int) -> None:
    number = b"\x38" + b"\xff" * (size - 1) + b"\x01"
    message = number + UNKNOWN * 200
    with pytest.raises(InvalidArgument, match="NewMessage: more than"):
        FORMS["Enqueue"].check_fields(b"\x1a" + varint(len(message)) + message)
    assert messages.NewMessage.FromString(number).HasField("deadline_in_ms")


def test_a_number_that_never_ends_is_left_to_the_parser() -> None:
    with pytest.raises(InvalidArgument, match="is not a valid"):
        FORMS["EnqueueBatch"].parse(b"\x38" + b"\x80" * (limits.REQUEST_BYTES - 1))


@pytest.mark.parametrize("field", [b"\xf8\x81\x80\x80\x00\x01", b"\x0a\x81\x80\x80\x80\x00a"], ids=["tag", "size"])
def test_tags_and_sizes_of_many_bytes_count_as_several_fields(field: bytes) -> None:
    message = field * 60
    with pytest.raises(InvalidArgument, match="and no valid EnqueueBatchRequest has as many"):
        FORMS["EnqueueBatch"].check_fields((b"\x1a" + varint(len(message)) + message) * limits.BATCH_ITEMS)


def test_a_number_as_the_key_of_a_map_of_texts_is_rejected() -> None:
    body = b"\x08\x01\x12\x80\x01" + b"v" * 128
    message = (b"\x1a" + varint(len(body)) + body) * 18
    with pytest.raises(InvalidArgument, match="MetadataEntry: no valid one has other fields"):
        FORMS["EnqueueBatch"].check_fields((b"\x1a" + varint(len(message)) + message) * limits.BATCH_ITEMS)


SIZES = st.sampled_from(
    [b"\x00", b"\x05", b"\x7f", b"\x80\x00", b"\x85\x00", b"\x80\x01", b"\x85\x80\x00", b"\x80\x80\x01"]
)
PARTS = st.one_of(
    st.tuples(st.sampled_from([b"\x0a", b"\x12", b"\x08", b"\x7a"]), SIZES, st.binary(max_size=130)).map(b"".join),
    st.sampled_from([KEY, VALUE, UNKNOWN, UNKNOWN * 20, b"\x12", b"\x0a\x80"]),
    st.binary(max_size=4),
)


@given(st.lists(PARTS, max_size=6).map(b"".join).filter(lambda body: len(body) > 3))
def test_an_entry_that_is_taken_for_a_pair_has_no_other_fields(body: bytes) -> None:
    # As in a request, other fields follow the entry.
    if not is_pair(body + UNKNOWN * 200, 0, len(body)):
        return
    is_text = body[0] == KEY[0]
    kind: Any = messages.NewMessage if is_text else calls.CompleteRequest
    try:
        parsed = kind.FromString((b"\x1a" if is_text else b"\x22") + varint(len(body)) + body)
    except DecodeError:
        return
    assert not UnknownFieldSet(parsed)


@given(st.binary(max_size=200), st.sampled_from(sorted(METHODS)))
def test_bytes_that_a_parser_accepts_or_rejects_never_break_the_count(raw: bytes, name: str) -> None:
    # For example, a packed field can have more items than a call takes.
    with suppress(InvalidArgument):
        FORMS[name].check_fields(raw)


@given(st.lists(st.dictionaries(st.text(max_size=40), st.text(max_size=80), max_size=18), max_size=20))
def test_valid_batches_have_few_enough_fields(metadata: list[dict[str, str]]) -> None:
    request = calls.EnqueueBatchRequest(messages=[messages.NewMessage(id="x", metadata=item) for item in metadata])
    FORMS["EnqueueBatch"].check_fields(request.SerializeToString())
