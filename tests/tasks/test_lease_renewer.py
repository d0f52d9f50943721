"""The lease renewer of a worker process, on a host whose resources are used up, or with many open files."""

import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.support.refused_threads import no_more_threads
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.testing import PrivateServer
from tickwheel.worker.consumer import _to_message_lease
from tickwheel.worker.ipc import BatchTaken, Ended, OccurrenceHandled, Ready, ReportWriter
from tickwheel.worker.lease_renewer import LeaseRenewer
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.stats import Stats

pytestmark = pytest.mark.integration

LEASE = timedelta(seconds=30)


def test_leases_are_renewed_after_the_host_had_no_resources_for_a_thread(
    tickwheel_server: PrivateServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    state, stats = SharedState(1), Stats()
    reading, writing = os.pipe()
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        ThreadPoolExecutor(4) as executor,
    ):
        queue = tickwheel.create_queue("jobs", lease=LEASE)
        queue.enqueue(b"")
        [message] = queue.dequeue()
        renewer = LeaseRenewer(state, reading, lambda report: tickwheel, stats, executor)
        writer = ReportWriter(writing, lambda: None)
        with no_more_threads():
            state.batches[0].begin(1, [message._held_until])
            writer.send(Ready({}, ["jobs"], []), BatchTaken(0, 1, [_to_message_lease(message)]))
            eventually(lambda: "can't start new thread" in caplog.text, "the renewal fails")
        eventually(lambda: stats.renewals >= 1, "the lease is renewed")
        assert renewer._thread.is_alive()
        os.close(writing)
        renewer.stop()
        renewer.close()
        state.close()


def test_a_lease_that_counted_as_lost_is_good_again_after_a_renewal_that_succeeds(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    state, stats = SharedState(1), Stats()
    reading, writing = os.pipe()
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        ThreadPoolExecutor(4) as executor,
    ):
        queue = tickwheel.create_queue("jobs", lease=LEASE)
        queue.enqueue_many([NewMessage(id=id) for id in ("held", "cancelled")])
        messages = queue.dequeue(limit=2)
        queue.cancel("cancelled")
        batch = state.batches[0]
        batch.begin(1, [0.0, 0.0])
        assert (batch.is_lost(0), batch.is_lost(1)) == (True, True)
        renewer = LeaseRenewer(state, reading, lambda report: tickwheel, stats, executor)
        leases = [_to_message_lease(message) for message in messages]
        before = time.monotonic()
        ReportWriter(writing, lambda: None).send(Ready({}, ["jobs"], []), BatchTaken(0, 1, leases))
        held, cancelled = sorted(range(2), key=lambda n: messages[n].id == "cancelled")
        eventually(lambda: not batch.is_lost(held), "the lease is renewed")
        eventually(lambda: batch.is_marked_lost(cancelled), "the server refuses the other renewal")
        # The length of the lease counts from the time at which the renewal was sent.
        seconds = LEASE.total_seconds()
        assert not batch.is_over(held, before + seconds - 0.01)
        assert batch.is_over(held, time.monotonic() + seconds)
        assert batch.is_lost(cancelled)
        os.close(writing)
        renewer.stop()
        renewer.close()
        state.close()


def test_reports_are_read_from_a_descriptor_of_any_number() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    state, stats = SharedState(1), Stats()
    reading, writing = os.pipe()
    high = os.dup2(reading, 1_500)
    os.close(reading)
    try:
        with ThreadPoolExecutor() as executor:
            renewer = LeaseRenewer(state, high, lambda report: pytest.fail("not ready"), stats, executor)
            ReportWriter(writing, lambda: None).send(OccurrenceHandled("daily", "fired"))
            eventually(lambda: stats.occurrences, "the report is read", 5)
            os.close(writing)
            renewer.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    state.close()


def test_a_process_that_the_worker_process_forks_sends_no_report() -> None:
    reading, writing = os.pipe()
    writer = ReportWriter(writing, lambda: None)
    child = os.fork()
    if child == 0:
        try:
            writer.send(Ended())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 100) == b""
    os.close(reading)
