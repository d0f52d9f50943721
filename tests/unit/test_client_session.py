"""A session of a client of the service: which calls count as unanswered."""

import pytest

from tickwheel.operations import sessions
from tickwheel.operations.sessions import ClientSession, SessionPool

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


def test_after_many_calls_at_a_time_the_pool_keeps_few_free_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_FREE_MAX", 2)
    pool = SessionPool()
    borrowed = [pool.borrow() for _ in range(4)]
    # A call of the last session was not answered: the session must reject a late copy of the call.
    borrowed[3].begin_call("tw", 0)
    for session in borrowed:
        session.__exit__()
    assert [pool.borrow() for _ in range(3)] == [borrowed[3], borrowed[1], borrowed[0]]
    assert pool.borrow() not in borrowed
