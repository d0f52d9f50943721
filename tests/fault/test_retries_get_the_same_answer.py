"""A retried mutating call whose answer was lost returns the same answer as a call without faults."""

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.mutating_calls import CALLS, PreparedNamespace, answer, prepare_namespace
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.storage import scripts
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.fault

THEN = datetime(2026, 5, 4, 12, tzinfo=UTC)
Open = Callable[[str], PreparedNamespace]


@pytest.fixture(params=[1, 4], ids=["1-shard", "4-shards"])
def open_prepared(request: pytest.FixtureRequest, tickwheel_server: PrivateServer) -> Iterator[Open]:
    """Return a function that prepares a new namespace through a URL. Its clock stands still at THEN."""
    with ExitStack() as stack:

        def open_namespace(url: str) -> PreparedNamespace:
            namespace = f"same-{os.urandom(6).hex()}"
            stack.callback(tickwheel_server.clear, namespace)
            settings: dict[str, Any] = {"shards": request.param, "history": "relay", "clock": FRAGMENT}
            tickwheel = stack.enter_context(Tickwheel(url, namespace=namespace, **settings))
            stack.callback(VirtualClock(tickwheel_server.url, namespace, THEN).close)
            return prepare_namespace(tickwheel)

        yield open_namespace


def transitions(server: Any, prepared: PreparedNamespace) -> list[OutboxTransition]:
    core = prepared.tickwheel._context
    return read_outbox(server, core.namespace, core.shards)


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_returns_the_same_answer_and_changes_nothing(
    name: str, open_prepared: Open, proxy: FlakyProxy, tickwheel_server: PrivateServer, server: Any
) -> None:
    call = CALLS[name]
    undisturbed, disturbed = open_prepared(tickwheel_server.url), open_prepared(proxy.url)
    before = len(transitions(server, undisturbed))
    expected = answer(call, undisturbed)
    proxy.loses_answer_to, proxy.times = scripts.load(call.script, FRAGMENT).sha.encode(), 2
    assert answer(call, disturbed) == expected
    assert proxy.lost == 2
    assert transitions(server, disturbed) == transitions(server, undisturbed)
    assert len(transitions(server, disturbed)) == before + call.changes
    assert disturbed.work.counts() == undisturbed.work.counts()
    assert disturbed.films.counts() == undisturbed.films.counts()


def test_a_second_cancel_reports_that_it_changed_nothing(open_prepared: Open, proxy: FlakyProxy) -> None:
    prepared = open_prepared(proxy.url)
    proxy.loses_answer_to, proxy.times = scripts.load("cancel", FRAGMENT).sha.encode(), 1
    assert prepared.work.cancel("later1").changed
    assert not prepared.work.cancel("later1").changed


class SessionDeleter(logging.Handler):
    """Deletes all sessions on the server whenever the client logs a retry."""

    def __init__(self, server: Any, namespace: str) -> None:
        super().__init__()
        self._server = server
        self._namespace = namespace

    def emit(self, record: logging.LogRecord) -> None:
        self._server.delete(*self._server.keys(f"{self._namespace}:*session*"))


def test_a_cancel_whose_session_and_answer_were_lost_returns_the_state(
    open_prepared: Open, proxy: FlakyProxy, server: Any
) -> None:
    prepared = open_prepared(proxy.url)
    assert prepared.work.cancel("later1").changed
    deleter = SessionDeleter(server, prepared.tickwheel._context.namespace)
    logging.getLogger("tickwheel").addHandler(deleter)
    try:
        proxy.loses_answer_to, proxy.times = scripts.load("cancel", FRAGMENT).sha.encode(), 1
        assert prepared.work.cancel("later1").state == "cancelled"
    finally:
        logging.getLogger("tickwheel").removeHandler(deleter)
    assert proxy.lost == 1


def test_a_waiting_request_keeps_its_id_when_an_answer_is_lost(open_prepared: Open, proxy: FlakyProxy) -> None:
    films = open_prepared(proxy.url).films
    proxy.loses_answer_to, proxy.times = b"the-worker", 1
    options: dict[str, Any] = {"where": {"of": "3"}, "worker": "the-worker", "request_id": "caller:1"}
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: films.dequeue(wait=timedelta(seconds=20), **options))
        eventually(lambda: sum(b"the-worker" in request for request in proxy.requests) >= 3, "the dequeue waits")
        films.enqueue(b"", id="a", metadata={"of": "3"})
        [message] = waiting.result()
    films.enqueue(b"", id="b", metadata={"of": "4"})
    [again] = films.dequeue(**options)
    assert (again.id, again.token) == (message.id, message.token)
