"""Every argument of every call receives every hostile value. The call raises a clear error and changes nothing, or
returns a correct result.

Afterwards the namespace passes the audit that follows every test, the call has written no other keys, and another
namespace on the same server is unchanged.
"""

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.security.calls import ARGUMENTS, CallTargets
from tests.security.hostile_values import TEXTS, VALUES, Colour, Number
from tickwheel import InvalidArgument, Message, Queue, Tickwheel, TickwheelError
from tickwheel.model.queue_config import SETTINGS
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

Contents = Callable[[str], dict[str, Any]]


@pytest.fixture
def neighbour(tickwheel_server: PrivateServer, contents: Contents) -> Iterator[None]:
    """Another namespace on the server, whose contents must not change."""
    with Tickwheel(tickwheel_server.url, namespace="neighbour") as other:
        other.queue("plain").enqueue(b"mine", id="m")
        before = contents("neighbour")
        yield
        assert contents("neighbour") == before
    tickwheel_server.clear("neighbour")


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_hostile_argument_is_a_clear_error_or_has_its_documented_effect(
    argument: str, tickwheel: Tickwheel, server: Any, dump: Callable[[], dict[str, Any]]
) -> None:
    targets, (types, call) = CallTargets(tickwheel), ARGUMENTS[argument]
    foreign = keys_of_others(server, tickwheel)
    before: dict[str, Any] | None = None
    for value in VALUES:
        if before is None:
            targets.prepare()
            before = dump()
        error = refusal(lambda: call(targets, value))  # noqa: B023
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        assert fits or error is not None, f"{argument} accepts {value!r:.80}"
        if error is None:
            before = None
        else:
            assert 10 < len(str(error)) < 1_000, f"{argument} raised {error!s:.1100}"
            assert dump() == before, f"{argument} raised {type(error).__name__} after a change"
            assert fits or isinstance(error, InvalidArgument), f"{type(error).__name__} for {value!r:.80}"
    assert keys_of_others(server, tickwheel) == foreign


def refusal(action: Callable[[], object]) -> TickwheelError | None:
    """Return the Tickwheel error that the action raises. Any other exception is a bug."""
    try:
        action()
    except TickwheelError as error:
        return error
    return None


def keys_of_others(server: Any, tickwheel: Tickwheel) -> set[bytes]:
    ours = tickwheel._context.namespace.encode() + b":{"
    return {key for key in server.scan_iter(count=10_000) if not key.startswith(ours)}


def test_every_argument_of_every_call_is_in_the_table() -> None:
    calls = [*vars(Queue).items(), *vars(Message).items(), *inspect.getmembers(Tickwheel)]
    named = {
        f"{name} {argument}"
        for name, method in calls
        if inspect.isfunction(method) and not name.startswith("_")
        for argument, parameter in inspect.signature(method).parameters.items()
        # Every method passes its timeout to the same function.
        if argument not in ("self", "timeout") and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert named | {f"create_queue {setting}" for setting in SETTINGS} <= ARGUMENTS.keys()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("url", "http://x"), ("url", "x"), ("url", 1), ("url", b"redis://x"), ("url", ""), ("url", "redis://x:notaport"),
        ("url", "redis://[x"), ("url", "redis://:pa/ss@x"), ("url", "redis://x?nonsense=1"), ("url", "redis"),
        ("url", "redis://x?socket_timeout=y"), ("url", "redis://x:99999"),
        ("url", "redis://x/orders"), ("url", "redis://x/1/2"), ("url", "redis://x/-1"), ("url", "redis://\0"),
        ("url", "redis://\ud800"), ("url", f"redis://{'h' * 300}"), ("url", "unix://"), ("url", "unix:///x\0"),
        ("namespace", ""), ("namespace", "a{b}"), ("namespace", "x" * 65), ("namespace", "a\n"), ("namespace", None),
        ("namespace", 1), ("namespace", "a:b"), ("namespace", "\ud800"), ("namespace", "é"),
        ("shards", float("nan")), ("shards", Number.TOO_MANY), ("data_dir", "a\0b"), ("durability", "memory\0"),
        ("durability", float("nan")), ("history", "capped\n"), ("clock_guard", float("nan")), ("drive", "True"),
        ("auto_create", "True"), ("namespace", "a\0"), ("url", "redis://h:0x10"),
        ("url", "redis://:12#secret@h:1/0"), ("url", "redis://:12?secret@h"),
        ("url", "redis://h?password=a#b"), ("url", "redis://h#"),
        ("url", "redis://h?decode_responses=1"), ("url", "redis://h?retry=3"), ("url", "redis://h?socket_timeout=-1"),
        ("url", "redis://h?encoding=utf-16"), ("url", "redis://h?ssl_password=x"),
        ("url", "rediss://h?credential_provider=x"), ("url", "redis://h?db=x"),
        ("shards", 0), ("shards", -1), ("shards", 2**20), ("shards", 1.0), ("shards", "1"), ("shards", True),
        ("data_dir", "x"), ("data_dir", ""), ("data_dir", 1),
        ("durability", "none"), ("durability", "replica:0"), ("durability", "replica:17"), ("durability", "replica:x"),
        ("durability", "replica:٣"), ("durability", "replica:" + "9" * 5_000), ("durability", 1), ("durability", True),
        ("drive", 1), ("drive", "yes"), ("history", "none"), ("history", 1), ("auto_create", 1),
        ("clock_guard", True), ("clock_guard", timedelta(milliseconds=249)), ("clock_guard", timedelta(hours=2)),
        ("clock", 5), ("clock", None), ("clock", "_constants"), ("clock", ["_clock"]), ("clock", "a\0"),
        ("timeout", "1"), ("timeout", timedelta(0)), ("timeout", -timedelta(seconds=1)), ("timeout", timedelta.max),
    ],
)  # fmt: skip
def test_a_client_with_invalid_settings_is_not_opened(
    argument: str, value: object, tickwheel_server: PrivateServer, server: Any
) -> None:
    before = set(server.scan_iter(count=10_000))
    settings: dict[str, Any] = {"url": tickwheel_server.url, "namespace": "never-opened"} | {argument: value}
    with pytest.raises(InvalidArgument):
        Tickwheel(**settings)
    assert set(server.scan_iter(count=10_000)) == before


def test_subclasses_of_numbers_are_accepted_by_their_value(tickwheel_server: PrivateServer) -> None:
    with Tickwheel(tickwheel_server.url, namespace="numbered", shards=Number.FOUR) as tickwheel:
        tickwheel.create_queue("q", max_attempts=Number.FOUR)
    with Tickwheel(tickwheel_server.url, namespace="numbered", shards=4) as tickwheel:
        assert tickwheel.queue("q").config().max_attempts == 4
    tickwheel_server.clear("numbered")


def test_subclasses_of_strings_are_accepted_by_their_text(
    tickwheel: Tickwheel, dump: Callable[[], dict[str, Any]]
) -> None:
    red = tickwheel.create_queue(Colour.RED, exclusive_key=Colour.RED, indexed=[Colour.RED])
    result = red.enqueue(id=Colour.RED, metadata={Colour.RED: Colour.RED})
    assert [red.name, result.id, *red.dequeue()[0].metadata] == ["red"] * 3
    assert all(type(text) is str for text in (red.name, result.id))
    assert [queue.name for queue in tickwheel.queues()] == ["red"]
    assert tickwheel.queue("red").get("red", "red").metadata == {"red": "red"}
    assert not [key for key in dump() if "Colour" in key]


@pytest.mark.parametrize(
    ("data_dir", "why"),
    [
        ("", "data_dir is empty"),
        ("a\0b", "data_dir must not contain NUL"),
        ("\ud800", "data_dir must be valid Unicode"),
        ("x" * 5_000, "data_dir must be 0 to 4096 bytes"),
    ],
)
def test_an_embedded_server_without_a_directory_name_is_not_opened(data_dir: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        Tickwheel(data_dir=data_dir)


@pytest.mark.parametrize("indexed", [{"a": "b"}, "ab", b"ab", iter(["a"]), [1], ["a", ["b"]], {"a", 1}, 5])
def test_indexed_keys_must_be_a_list_of_names(indexed: Any, tickwheel: Tickwheel) -> None:
    with pytest.raises(InvalidArgument, match=r"indexed must be|a key of indexed must be"):
        tickwheel.create_queue("q", indexed=indexed)
    for fine in (["b", "a", "a"], ("a", "b"), {"a", "b"}, frozenset("ab")):
        assert tickwheel.create_queue("fine", indexed=fine).config().indexed == ("a", "b")


@pytest.mark.parametrize("name", ["a", 0], ids=["equal names", "no names"])
def test_the_number_of_indexed_keys_is_checked_before_the_keys(name: Any, tickwheel: Tickwheel) -> None:
    with pytest.raises(
        InvalidArgument, match="the number of keys in indexed must be a whole number from 0 to 16, not 20"
    ):
        tickwheel.create_queue("q", indexed=[name] * 20_000)


@pytest.mark.parametrize("text", [text for text in TEXTS if 1 <= len(text.encode(errors="replace")) <= 128])
def test_every_text_without_nul_is_an_id_and_a_value(text: str, tickwheel: Tickwheel) -> None:
    work = tickwheel.create_queue("own", exclusive_key="of")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        with pytest.raises(InvalidArgument):
            work.enqueue(id=text, metadata={"of": "1"})
        return
    key = text[:32]
    metadata = {"of": text, key: text}
    work.enqueue(b"x", id=text, metadata=metadata)
    assert work.get(text, text).metadata == metadata
    assert work.depth({key: text}) == 1
    [message] = work.dequeue(where={key: text}, worker=key)
    assert (message.id, message.exclusive_value, message.metadata) == (text, text, metadata)
    assert work.explain(text, text).worker == key
    message.fail(text, timedelta(0))
    assert work.get(text, text).error == text
    work.cancel(text, text)
    assert work.counts()["cancelled"] == 1
