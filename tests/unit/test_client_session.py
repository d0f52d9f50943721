"""A session of a client of the service: which calls count as unanswered."""

import pytest

from tickwheel.operations import sessions
from tickwheel.operations.sessions import ClientSession

pytestmark = pytest.mark.unit


def test_with_many_unanswered_queues_the_calls_of_further_queues_count_as_unanswered_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_UNANSWERED_MAX", 2)
    session = ClientSession()
    assert session.begin_rpc("a")
    assert session.begin_rpc("b")
    # Neither call was answered.
    assert session.begin_rpc("c")
    assert not session.begin_rpc("d")
    session.rpc_answered("d")
    assert not session.begin_rpc("c")

    assert not session.begin_rpc("a")
    session.rpc_answered("a")
    assert not session.begin_rpc("a")
