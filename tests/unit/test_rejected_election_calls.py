"""What the thread of an election by lease logs while the server rejects its calls."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
from redis.exceptions import AuthenticationError, NoPermissionError

from tests.support.wait_until import eventually
from tickwheel.election.lease_row import LAST_RESORT
from tickwheel.event_process.lease_election import LeaseElection
from tickwheel.storage.script_errors import ScriptError

pytestmark = pytest.mark.unit

ATTEMPTS = 4


class Rejecting:
    """A server that rejects each connection for the next reason, the last one again and again."""

    def __init__(self, *reasons: Exception) -> None:
        self.attempts = 0
        self._reasons = reasons

    def connect(self, shard: int) -> Any:
        self.attempts += 1
        raise self._reasons[min(self.attempts, len(self._reasons)) - 1]


@contextmanager
def taking_part(server: Rejecting) -> Iterator[LeaseElection]:
    election = LeaseElection(server.connect, "tw", 1, rank=LAST_RESORT, lease_ms=200)
    loop = Thread(target=election.acquire, args=(0, Event(), lambda: None))
    loop.start()
    try:
        yield election
    finally:
        election.leave()
        election.close()
        loop.join()


@pytest.mark.parametrize(
    "reason",
    [NoPermissionError("NOPERM no permission"), AuthenticationError("WRONGPASS"), ScriptError("NOPERM no key")],
)
def test_a_rejection_is_logged_once(reason: Exception, caplog: pytest.LogCaptureFixture) -> None:
    server = Rejecting(reason)
    with caplog.at_level(logging.WARNING), taking_part(server):
        eventually(lambda: server.attempts >= ATTEMPTS, "the thread has tried several times")
    [record] = caplog.records
    assert record.getMessage() == f"the server rejects the calls of the election; trying again: {reason}"


def test_each_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Rejecting(NoPermissionError("no key"), NoPermissionError("no channel"), NoPermissionError("no key"))
    with caplog.at_level(logging.WARNING), taking_part(server):
        eventually(lambda: server.attempts >= ATTEMPTS, "the thread has tried several times")
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["no key", "no channel"]


def test_a_namespace_that_is_gone_is_left_to_its_check(caplog: pytest.LogCaptureFixture) -> None:
    server = Rejecting(ScriptError("NAMESPACEGONE the namespace has lost its state"))
    with caplog.at_level(logging.WARNING), taking_part(server) as election:
        eventually(lambda: election.must_check_namespace, "the namespace must be checked")
    assert not caplog.records


@pytest.mark.parametrize(
    ("lease_ms", "calls_rarely"), [(4_000, False), (20_000, False), (20_001, True), (60_000, True)]
)
def test_a_member_with_a_long_lease_calls_too_rarely_to_notice_a_lost_namespace(
    lease_ms: float, calls_rarely: bool
) -> None:
    election = LeaseElection(Rejecting(OSError()).connect, "tw", 1, rank=LAST_RESORT, lease_ms=lease_ms)
    try:
        assert election.must_check_namespace == calls_rarely
    finally:
        election.close()
