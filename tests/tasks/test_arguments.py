"""Arguments of tasks are checked when a call is sent, and decoded to the same values and types."""

import random
import sys
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st

from tickwheel.errors import InvalidArgument
from tickwheel.tasks import ArgumentsRefused, Retry, TaskApp
from tickwheel.tasks.signature import Signature, read_envelope

pytestmark = pytest.mark.unit


@dataclass
class Address:
    street: str
    number: int


class Colour(IntEnum):
    RED = 1


@dataclass
class Paint:
    name: str

    def __post_init__(self) -> None:
        self.code = {"red": 1}[self.name]


@dataclass
class Node:
    child: "Node | None"


@dataclass
class Upload:
    user: int
    file: Path


def accept_node(node: Node) -> None: ...


def paint(paint: Paint) -> None: ...


def order(user: int, note: str = "", tags: list[str] | None = None, *, to: Address | None = None) -> None: ...


def anything(value, other=None): ...  # type: ignore[no-untyped-def]


def typed(at: datetime, price: Decimal, key: UUID, wait: timedelta, raw: bytes) -> None: ...


def roundtrip(function: Any, encoding: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    signature = Signature("t", function)
    envelope = read_envelope(signature.payload(args, kwargs, encoding))
    assert envelope.task == "t"
    return signature.read(envelope.args)


ENCODINGS = pytest.mark.parametrize("encoding", ["json", "msgpack"])


@ENCODINGS
def test_arguments_are_read_by_the_types_of_the_signature(encoding: str) -> None:
    assert roundtrip(order, encoding, 7, to=Address("Elm", 3)) == {"user": 7, "to": Address("Elm", 3)}
    arguments = {
        "at": datetime(2026, 5, 17, 18, tzinfo=UTC),
        "price": Decimal("1.10"),
        "key": UUID(int=7),
        "wait": timedelta(minutes=15),
        "raw": b"\x00\xff",
    }
    assert roundtrip(typed, encoding, **arguments) == arguments


@ENCODINGS
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_every_plain_value_arrives_unchanged(encoding: str, value: Any) -> None:
    assert roundtrip(anything, encoding, value) == {"value": value}


@ENCODINGS
@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("7",), {}, r"Expected `int`, got `str` - at `\$.user`"),
        ((), {}, "missing a required argument: 'user'"),
        ((7,), {"usr": 1}, "unexpected keyword argument 'usr'"),
        ((7,), {"tags": ["a", 1]}, r"Expected `str`, got `int` - at `\$.tags\[1\]`"),
        ((7,), {"to": {"street": "Elm"}}, "missing required field `number`"),
        ((7,), {"note": object()}, "cannot be encoded as"),
    ],
    ids=["type", "missing", "unknown", "inner", "dataclass", "object"],
)
def test_arguments_that_do_not_match_the_signature_are_refused_before_anything_is_sent(
    encoding: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentsRefused, match=message):
        Signature("t", order).payload(args, kwargs, encoding)


@ENCODINGS
def test_a_value_that_would_arrive_as_another_type_is_refused(encoding: str) -> None:
    with pytest.raises(ArgumentsRefused, match="'value' would arrive as another type than datetime"):
        Signature("t", anything).payload((datetime.now(UTC),), {}, encoding)


@pytest.mark.parametrize(
    "value",
    [(1, 2), [(1, 2)], {1: 2}, {"a": {1.5: 1}}, {1}, Colour.RED],
    ids=["tuple", "inner tuple", "key", "inner key", "set", "enum"],
)
def test_an_untyped_value_that_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentsRefused, match="annotate the parameter with its type"):
        Signature("t", anything).payload((value,), {}, "json")


def test_msgpack_keeps_the_types_of_keys() -> None:
    assert roundtrip(anything, "msgpack", {1: [2]}) == {"value": {1: [2]}}


@ENCODINGS
def test_an_untyped_value_may_be_nested_up_to_half_of_the_recursion_limit(encoding: str) -> None:
    # Each level of lists costs the encoder one nested call.
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit() // 2):
        value = [value]
    assert roundtrip(anything, encoding, value) == {"value": value}


def test_arguments_of_another_version_are_refused_when_they_are_read() -> None:
    signature = Signature("t", order)
    with pytest.raises(ArgumentsRefused, match="unknown field `colour`"):
        signature.read(b'{"user": 7, "colour": "red"}')
    with pytest.raises(ArgumentsRefused, match="missing required field `user`"):
        signature.read(b"{}")


def test_a_refusal_quotes_only_a_part_of_a_long_name() -> None:
    with pytest.raises(ArgumentsRefused, match=r"unknown field `xxx.* bytes are cut here") as refusal:
        Signature("t", order).read(b'{"user": 7, "%s": 1}' % (b"x" * 100_000))
    assert len(str(refusal.value)) < 1_000


def test_a_refusal_names_the_parameters_and_no_default() -> None:
    def connect(host: str, password: str = "s3cret") -> None: ...

    with pytest.raises(ArgumentsRefused, match=r"; its parameters are: host, password$") as refusal:
        Signature("t", connect).read(b"{}")
    assert "s3cret" not in str(refusal.value)
    with pytest.raises(ArgumentsRefused, match=r"; its parameters are: host, password$"):
        Signature("t", connect).payload((), {}, "json")


@pytest.mark.parametrize("payload", [b"", b"{", b"\x80\x04.", b"[]", b"\xff" * 40, b'{"args": {}}'], ids=repr)
def test_a_payload_that_is_not_a_task_is_refused(payload: bytes) -> None:
    with pytest.raises(ArgumentsRefused, match="not a call of a task"):
        read_envelope(payload)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"garbage", "it is neither a JSON object nor a msgpack map$"),
        (b"", "it is neither a JSON object nor a msgpack map$"),
        (b'{"args": {}}', "it begins as a JSON object, but .*`task`"),
        (msgspec.msgpack.encode({"args": {}}), "it begins as a msgpack map, but .*`task`"),
    ],
    ids=["text", "empty", "json", "msgpack"],
)
def test_the_refusal_of_a_payload_names_the_format_that_it_seems_to_have(payload: bytes, problem: str) -> None:
    with pytest.raises(ArgumentsRefused, match=f"the payload is not a call of a task: {problem}"):
        read_envelope(payload)


@pytest.mark.parametrize("payload", [b'{"a":' * 100_000, b"\x81\xa1a" * 100_000], ids=["json", "msgpack"])
def test_a_payload_that_is_nested_too_deeply_is_refused(payload: bytes) -> None:
    with pytest.raises(ArgumentsRefused, match="recursion"):
        read_envelope(payload)


def test_arguments_are_refused_after_any_error_of_reading_them() -> None:
    signature = Signature("t", paint)
    with pytest.raises(ArgumentsRefused, match="KeyError: 'mauve'"):
        signature.read(b'{"paint": {"name": "mauve"}}')
    with pytest.raises(ArgumentsRefused, match="RecursionError"):
        Signature("t", anything).read(b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@given(st.binary(max_size=200))
def test_a_payload_raises_no_error_but_arguments_refused(payload: bytes) -> None:
    with suppress(ArgumentsRefused):
        Signature("t", order).read(read_envelope(payload).args)


def test_functions_with_positional_only_or_variadic_parameters_are_refused() -> None:
    def stars(*args: int) -> None: ...
    def named(**kwargs: int) -> None: ...
    def positional(a: int, /) -> None: ...

    for function in (stars, named, positional):
        with pytest.raises(InvalidArgument, match="cannot be passed by name"):
            Signature("t", function)


def test_unreadable_types_are_reported_when_a_worker_starts() -> None:
    def open_file(file: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidArgument, match="NoSuchType"):
        Signature("t", open_file).check()


class Client: ...


def copy(file: Path) -> None: ...
def talk(user: int, client: Client) -> None: ...
def copy_all(files: list[Path]) -> None: ...
def choose(target: Address | Paint) -> None: ...
def choose_one(target: Address | Paint | None = None) -> None: ...
def store(upload: Upload) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (copy, "parameter 'file' of the type pathlib.*Path: pathlib.Path cannot be decoded .*; use bool, int"),
        (talk, "parameter 'client' of the type .*Client: .*Client cannot be decoded"),
        (copy_all, "parameter 'files' of the type list.*: pathlib.Path cannot be decoded"),
        (
            choose,
            "parameter 'target' of the type .*: Type unions may not contain more than one dataclass .*; use bool, int",
        ),
        (choose_one, "parameter 'target' of the type .*: Type unions may not contain more than one dataclass"),
        (store, "parameter 'upload' of the type .*Upload: pathlib.Path cannot be decoded"),
    ],
    ids=["path", "class", "list", "union", "optional union", "field"],
)
def test_a_type_that_cannot_be_decoded_is_refused_at_the_declaration(function: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TaskApp().task(function)


def test_a_parameter_that_calls_can_leave_out_may_have_any_type() -> None:
    def talk(user: int, client: Client | None = None, file: Path = Path("log"), any: object = None) -> None: ...
    def show(value: object, key: Hashable, node: "Node") -> None: ...

    for encoding in ("json", "msgpack"):
        assert roundtrip(talk, encoding, 7) == {"user": 7}
    TaskApp().task(show)
    Signature("t", accept_node)


def test_an_annotation_that_is_unresolved_at_the_declaration_is_checked_later() -> None:
    def open_file(file: "DefinedLater") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature("t", open_file)
    globals()["DefinedLater"] = Path
    try:
        with pytest.raises(InvalidArgument, match="Path cannot be decoded"):
            signature.check()
    finally:
        del globals()["DefinedLater"]


def test_a_task_name_is_unique_in_an_app() -> None:
    app = TaskApp()
    app.task(name="send")(order)
    with pytest.raises(InvalidArgument, match="two tasks 'send'"):
        app.task(name="send")(anything)


def test_a_task_can_be_called_as_a_function() -> None:
    app = TaskApp()

    @app.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice."
    assert double.name.endswith("test_arguments.test_a_task_can_be_called_as_a_function.<locals>.double")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": ["colour"]}, "not a parameter of the task"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"lease": timedelta(0)}, "lease"),
        ({"time_limit": timedelta(0)}, "time_limit"),
        ({"queue": "a queue"}, "queue's name"),
        ({"name": ""}, "task's name"),
    ],
    ids=["metadata", "max_attempts", "lease", "time_limit", "queue", "name"],
)
def test_an_invalid_declaration_of_a_task_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TaskApp().task(**options)(order)


def test_the_back_off_doubles_with_equal_jitter_up_to_its_limit() -> None:
    retry, rng = Retry(timedelta(seconds=1), timedelta(seconds=10)), random.Random(1)
    for attempt, bound in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (1_000, 10)):
        delays = [retry.delay(attempt, rng).total_seconds() for _ in range(300)]
        assert 0.5 * bound <= min(delays) < 0.6 * bound
        assert 0.9 * bound < max(delays) <= bound
