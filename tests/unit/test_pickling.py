"""Errors can be pickled, so that a pool of worker processes can return them."""

import pickle
from pathlib import Path

import pytest

from tickwheel import (
    EnqueueResult,
    InvalidArgument,
    LeaseLost,
    QueueConfigConflict,
    TickwheelError,
    Unavailable,
    errors,
)
from tickwheel.embedded.valkey_process import EmbeddedServerError, ServerEnded

pytestmark = pytest.mark.unit

EVERY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TickwheelError)]
EMBEDDED = [EmbeddedServerError, ServerEnded]


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind not in EMBEDDED])
def test_a_pickled_error_equals_the_original(kind: type[TickwheelError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what was wrong")))
    assert (type(copy), str(copy)) == (kind, "what was wrong")


@pytest.mark.parametrize("kind", EMBEDDED)
def test_a_pickled_error_of_the_embedded_server_equals_the_original(kind: type[EmbeddedServerError]) -> None:
    error = kind("it ended", data_dir=Path("data"), log_tail="why")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.data_dir, copy.log_tail) == (kind, str(error), Path("data"), "why")


def test_the_attributes_of_an_error_are_pickled() -> None:
    assert not pickle.loads(pickle.dumps(Unavailable("x", may_have_happened=False))).may_have_happened
    results = [EnqueueResult("a", "pending", created=True), None]
    assert pickle.loads(pickle.dumps(InvalidArgument("x", results))).results == results
    assert pickle.loads(pickle.dumps(InvalidArgument("x; y", results, summary="; y"))).summary == "; y"
    assert pickle.loads(pickle.dumps(QueueConfigConflict("x; y", advice="y"))).advice == "y"
    assert pickle.loads(pickle.dumps(LeaseLost("x", ["m"]))).lost == ["m"]
