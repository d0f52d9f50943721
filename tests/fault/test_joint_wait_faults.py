"""A call that waits for several queues finds their messages although announcements are lost or the server fails."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.property.mutants import Mutant, load_mutant
from tests.support.several_queues import LONG_S, NAMES, Caller
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.fault

SILENT = Mutant("no wake-up is sent", "_transition", "call('SPUBLISH', wake, new_ready_count)", "")


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An element for each time that a call has begun to sleep."""
    sleeps: list[None] = []
    may_sleep = WaitList.may_sleep

    def noted(waiters: WaitList, joint: Any) -> bool:
        if sleeping := may_sleep(waiters, joint):
            sleeps.append(None)
        return sleeping

    monkeypatch.setattr(WaitList, "may_sleep", noted)
    return sleeps


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An element for each time that a call has begun to check its queues."""
    checks: list[None] = []
    check = MessageWait._check

    def noted(wait: MessageWait) -> Any:
        checks.append(None)
        return check(wait)

    monkeypatch.setattr(MessageWait, "_check", noted)
    return checks


@pytest.fixture
def tickwheel(faulty: FaultyServer, open_client: Callable[..., AbstractContextManager[Any]]) -> Iterator[Tickwheel]:
    with open_client(faulty.url, namespace="joint", drive=False) as tickwheel:
        for name in NAMES:
            tickwheel.create_queue(name)
        yield tickwheel


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def begin(caller: Caller, threads: ThreadPoolExecutor, sleeps: list[None]) -> "Future[tuple[str, list[str]]]":
    assert caller.take()[1] == []
    waiting = threads.submit(caller.take, LONG_S)
    eventually(lambda: sleeps, "the call sleeps")
    return waiting


def test_the_sweep_finds_a_message_whose_announcement_is_lost(
    tickwheel: Tickwheel, threads: ThreadPoolExecutor, sleeps: list[None], tmp_path: Path
) -> None:
    waiting = begin(Caller(tickwheel), threads, sleeps)
    with load_mutant(SILENT, tmp_path):
        tickwheel.queue("green").enqueue(id="m")
        assert waiting.result(LONG_S) == ("green", ["m"])


def test_a_message_is_found_after_the_connection_of_the_subscriptions_was_cut(
    faulty: FaultyServer,
    tickwheel: Tickwheel,
    threads: ThreadPoolExecutor,
    sleeps: list[None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    waiting = begin(Caller(tickwheel), threads, sleeps)
    with load_mutant(SILENT, tmp_path), faulty.client() as server:
        tickwheel.queue("blue").enqueue(id="m")
        assert not waiting.done()
        server.client_kill_filter(_type="pubsub")
        assert waiting.result(LONG_S) == ("blue", ["m"])


def test_a_message_is_found_after_the_server_was_killed_and_started_again(
    faulty: FaultyServer,
    tickwheel: Tickwheel,
    threads: ThreadPoolExecutor,
    sleeps: list[None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    waiting = begin(Caller(tickwheel), threads, sleeps)
    faulty.restart()
    tickwheel.queue("blue").enqueue(id="m")
    assert waiting.result(LONG_S) == ("blue", ["m"])


def test_a_message_is_found_after_the_server_was_frozen(
    faulty: FaultyServer, tickwheel: Tickwheel, threads: ThreadPoolExecutor, sleeps: list[None], checks: list[None]
) -> None:
    waiting = begin(Caller(tickwheel), threads, sleeps)
    queue = tickwheel.queue("red")
    before = len(checks)
    with faulty.paused():
        enqueued = threads.submit(queue.enqueue, id="m")
        eventually(lambda: len(checks) > before, "a sweep makes the call check its queues in the frozen server")
        assert not waiting.done()
    assert waiting.result(LONG_S) == ("red", ["m"])
    assert enqueued.result(LONG_S).created
