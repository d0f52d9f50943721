"""The interfaces that users, operators and other programs rely on equal their recorded state (`tests/frozen`).

`test_proto` compares the proto files with their release.
"""

import base64
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tickwheel
from tests.frozen import pickles, record
from tickwheel import TickwheelError
from tickwheel.model.queue_config import QueueConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("topic", sorted(record.PURE))
def test_the_public_surface_is_as_recorded(topic: str) -> None:
    now = record.as_json(record.PURE[topic]())
    differences = list(record.differences(record.recorded(topic), now, topic))
    assert not differences, "\n".join([f"{topic} is not as recorded:", *differences, record.REMEDY])


def test_every_topic_has_its_file_and_every_file_its_topic() -> None:
    files = {path.stem for path in record.FOLDER.glob("*.json")}
    assert files == {*record.PURE, *record.SERVED, "pickles"}


@pytest.mark.parametrize(
    ("was", "now", "line"),
    [
        ({"a": {"b": 1}}, {"a": {}}, "gone: a / b: 1"),
        ({"a": {}}, {"a": {"b": 1}}, "new: a / b: 1"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "changed: a / b: 1 -> 2"),
        ({"a": ["x", "y"]}, {"a": ["x"]}, 'gone: a: "y"'),
        ({"a": ["x"]}, {"a": ["x", "y"]}, 'new: a: "y"'),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, 'changed: a: in another order, or another number of times: ["y", "x"]'),
    ],
)
def test_a_difference_is_named(was: Any, now: Any, line: str) -> None:
    assert list(record.differences(was, now)) == [line]


def test_the_former_name_of_the_uid_of_a_configuration_still_works() -> None:
    assert QueueConfig(uid=b"abcd").stamp == b"abcd"


@pytest.mark.parametrize("name", sorted(pickles.EXPECTED))
def test_pickles_of_the_version_before_can_be_read(name: str) -> None:
    value = pickle.loads(base64.b64decode(record.recorded("pickles")[name]))
    assert type(value) is type(pickles.EXPECTED[name])
    assert pickles.contents(value) == pickles.contents(pickles.EXPECTED[name])


def test_every_pickle_is_compared() -> None:
    assert set(record.recorded("pickles")) == set(pickles.EXPECTED)


@pytest.mark.parametrize("name", ["Message", "aio.Message"])
def test_a_method_of_an_unpickled_message_raises_a_clear_error(name: str) -> None:
    message = pickle.loads(base64.b64decode(record.recorded("pickles")[name]))
    assert message.due == datetime(2030, 1, 1, tzinfo=UTC)
    assert message.lease_until - message.due == timedelta(seconds=30)
    with pytest.raises(TickwheelError, match="pickled"):
        _finish(message)


def _finish(message: Any) -> None:
    """Complete the message. In the asyncio client, the call fails before it awaits anything."""
    coroutine = message.complete()
    if coroutine is not None:
        coroutine.send(None)


def test_every_pickle_is_of_a_public_class() -> None:
    message = pickle.loads(base64.b64decode(record.recorded("pickles")["Message"]))
    assert isinstance(message, tickwheel.Message)
