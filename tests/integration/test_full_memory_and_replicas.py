"""Work continues at the memory limit, and a repeated call waits for the replicas like the first call."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from tests.support.paused_process import pause
from tickwheel import InvalidArgument, NotDurable, OutOfMemory, Tickwheel
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@contextmanager
def full(server: PrivateServer) -> Iterator[None]:
    client = server.client()
    client.config_set("maxmemory", "1mb")
    try:
        yield
    finally:
        client.config_set("maxmemory", "0")
        client.close()


def test_at_the_memory_limit_enqueue_is_refused_and_new_clients_can_work_on_existing_messages() -> None:
    with PrivateServer() as server, Tickwheel(server.url) as producer:
        producer.queue("jobs").enqueue(b"first", id="first")
        producer.queue("jobs").enqueue(b"second", id="second")
        with full(server):
            with pytest.raises(OutOfMemory):
                producer.queue("jobs").enqueue(b"third")
            with pytest.raises(OutOfMemory):
                producer.create_queue("another")
            with Tickwheel(server.url) as worker:
                queue = worker.queue("jobs")
                first, second = queue.dequeue(limit=2)
                first.extend(timedelta(minutes=1))
                first.complete()
                assert second.fail(retry_in=timedelta(0)) == "pending"
                worker.create_queue("jobs", update=True, lease=timedelta(minutes=2))
                queue.block()
                queue.unblock()
                assert queue.cancel("second").state == "cancelled"
        assert producer.queue("jobs").counts()["completed"] == 1


def test_at_the_memory_limit_a_reschedule_is_refused_and_changes_nothing() -> None:
    with PrivateServer() as server, Tickwheel(server.url) as tickwheel:
        queue = tickwheel.queue("jobs")
        queue.enqueue(b"later", id="later", delay=timedelta(hours=1))
        before = queue.get("later")
        with full(server):
            # Each reschedule can leave a timer that stays on the wheel until it fires.
            with pytest.raises(OutOfMemory):
                queue.reschedule("later", delay=timedelta(hours=2))
            assert queue.get("later") == before
        assert tickwheel._run(audit(tickwheel._context)) == []
        assert queue.reschedule("later", delay=timedelta(hours=2)).changed


def test_at_the_memory_limit_every_call_that_ends_or_returns_messages_goes_on() -> None:
    with PrivateServer() as server, Tickwheel(server.url) as tickwheel:
        queue = tickwheel.queue("jobs")
        queue.enqueue(b"", id="errored")
        queue.dequeue()[0].fail(final=True)
        queue.enqueue(b"", id="later", delay=timedelta(hours=1))
        with full(server):
            assert queue.redrive("errored").state == "pending"
            (first,) = queue.dequeue()
            first.release()
            (again,) = queue.dequeue()
            assert again.fail(retry_in=timedelta(hours=1)) == "invisible"
            assert queue.purge(["invisible"]) == 2
            tickwheel.delete_queue("jobs")
        assert tickwheel.queues() == []


def test_a_repeated_call_is_not_durable_before_the_replica_has_the_writes_of_the_first() -> None:
    with PrivateServer() as primary, PrivateServer() as replica:
        primary.client().config_set("repl-diskless-sync-delay", "0")
        primary.client().config_set("port", "0")
        port = _free_port(primary)
        replica.client().replicaof("127.0.0.1", port)
        with Tickwheel(primary.url, durability="replica:1") as tickwheel:
            _until_linked(replica)
            queue = tickwheel.queue("jobs")
            queue.enqueue(b"a", id="a")
            pid = replica.client().info("server")["process_id"]
            pause(pid)
            try:
                with pytest.raises(NotDurable):
                    queue.enqueue(b"b", id="b")
                tickwheel._io._servers.close()
                with pytest.raises(NotDurable):
                    queue.enqueue(b"b", id="b")
            finally:
                os.kill(pid, signal.SIGCONT)
            assert queue.enqueue(b"b", id="b").state == "pending"
            assert tickwheel._run(audit(tickwheel._context)) == []


def test_the_embedded_server_has_no_replicas_to_wait_for() -> None:
    with pytest.raises(InvalidArgument, match="no replicas"):
        Tickwheel(durability="replica:1")


def _free_port(server: PrivateServer) -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server.client().config_set("port", str(port))
    return port


def _until_linked(replica: PrivateServer) -> None:
    import time

    deadline = time.monotonic() + 20
    while replica.client().info("replication")["master_link_status"] != "up":
        assert time.monotonic() < deadline, "the replica is not linked within 20 s"
