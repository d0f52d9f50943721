"""The users that `tickwheel acl` creates: each process works with its own user, which has only the rights it needs."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from services.kafka import Kafka
from services.serving_program import SERVE, ServingProgram
from services.valkey import ValkeyServer
from tests.fault.worker_processes import Worker
from tests.integration.service_thread import ServiceThread
from tests.security.acl_server import serve_with_users
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import make_topic
from tests.support.several_queues import Caller
from tests.support.tickets import Tickets
from tests.support.wait_until import eventually
from tickwheel import Forbidden, LeaseLost, NewMessage, QueueNotEmpty, Tickwheel
from tickwheel.election.election import owner_name
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.event_process import EventProcess
from tickwheel.event_process.queue_metrics_reader import QueueMetricsReader
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.redis.acl import User, users
from tickwheel.storage.keys import shard_key
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.security

NAMESPACE = "tw"
SERVICE, EVENTS, OPERATOR = users(NAMESPACE)
WAIT = timedelta(seconds=20)
DOCTOR = (sys.executable, "-m", "tickwheel", "doctor", "--namespace", NAMESPACE)
# Commands for a cluster, for replicas, for shards that change their leader, and commands that redis-py may send.
ELSEWHERE = {"asking", "cluster|slots", "wait", "sunsubscribe", "client|setname", "select", "ping"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    folder = tmp_path_factory.mktemp("acl")
    with serve_with_users(folder, (SERVICE, EVENTS, OPERATOR), {"appendfsync": "always"}) as server:
        yield server


def url(server: ValkeyServer, user: User) -> str:
    return f"redis://{user.name}:{user.password}@{server.address}"


@contextmanager
def reading_queue_metrics(process: EventProcess) -> Iterator[QueueMetricsReader]:
    """Read the metrics of queues, as `tickwheel events --metrics` does."""
    assert process.queue_metrics is not None
    with process.queue_metrics.running():
        yield process.queue_metrics


def client(server: ValkeyServer, user: User) -> Any:
    return redis.Redis.from_url(url(server, user), protocol=2, decode_responses=True)


@pytest.mark.parametrize("election", ["lease", "lock"])
def test_each_process_works_under_its_own_user_without_a_refused_command(
    server: ValkeyServer, kafka: Kafka, tmp_path: Path, election: str
) -> None:
    server.call("FLUSHALL")
    broker = KafkaProducers(kafka.bootstrap, make_topic(kafka))
    Tickwheel(server.url, namespace=NAMESPACE, shards=2, history="relay").close()
    subprocess.run([*DOCTOR, "--attest", "--url", server.url], timeout=60, check=True)
    server.call("ACL", "LOG", "RESET")
    with (
        # The user of the service creates the namespace, like the first client.
        Tickwheel(
            url(server, SERVICE), namespace=NAMESPACE, shards=2, history="relay", drive=False, durability="fsync"
        ) as direct,
        ServiceThread(url(server, SERVICE)) as service,
        run_event_process(
            url(server, EVENTS), NAMESPACE, LeaseOptions() if election == "lease" else tmp_path / "lock", broker
        ) as process,
        reading_queue_metrics(process) as metrics,
        Tickwheel(service.url, namespace=NAMESPACE) as remote,
    ):
        for tickwheel, name in ((direct, "direct"), (remote, "remote")):
            use_every_operation(tickwheel, name)
        with server.client() as admin:
            outboxes = [shard_key(NAMESPACE, shard, "events") for shard in range(2)]
            eventually(lambda: not any(map(admin.xlen, outboxes)), "the relay has trimmed the outbox", 60)
        eventually(metrics.readings, "the event process has read the metrics of queues")
        for command in (["doctor"], ["shards"]):
            done = subprocess.run(
                [sys.executable, "-m", "tickwheel", *command, "--url", url(server, OPERATOR), "--namespace", NAMESPACE],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            if command == ["doctor"] and election == "lease":
                assert f"by lease: {owner_name()} leads shard 0 to 1" in done.stdout
        assert all(stats.epoch for stats in process.health().values())
    # The operator's commands probe the rights that its user does not have, and report what they did not check.
    log = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in server.call("ACL", "LOG")]
    refused = {(entry["username"], entry["object"]) for entry in log}
    assert refused == {
        *((SERVICE.name, command) for command in ("config|get", "client|list")),
        *((OPERATOR.name, command) for command in ("config|get", "client|list", "scan")),
    }
    assert_no_user_has_unused_rights(server)
    # The event processes of the following tests have lock files.
    server.call("FLUSHALL")


def test_the_service_starts_under_the_user_of_its_namespace(server: ValkeyServer, tmp_path: Path) -> None:
    user = users("other")[0]
    server.call("ACL", "SETUSER", *user.rule.split()[1:])
    with (
        ServingProgram(tmp_path, *SERVE, url(server, user), "--namespace", "other") as service,
        Tickwheel(service.url, namespace="other") as tickwheel,
    ):
        assert tickwheel.queue("q").enqueue(id="m").created


@pytest.mark.parametrize("granted", [(), ("+client|list", "+scan")], ids=["as-printed", "with-client-list-and-scan"])
def test_the_service_deletes_a_namespace_only_under_a_user_that_may_remove_every_key(
    server: ValkeyServer, tmp_path: Path, granted: tuple[str, ...]
) -> None:
    user = users("removed")[0]
    server.call("ACL", "SETUSER", *user.rule.split()[1:], *granted)
    with (
        server.client() as admin,
        Tickwheel(server.url, namespace="removed", shards=2) as direct,
        ServingProgram(tmp_path, *SERVE, url(server, user), "--namespace", "removed") as service,
        Tickwheel(service.url, namespace="removed") as remote,
    ):
        remote.queue("q").enqueue(delay=WAIT)

        def keys() -> set[bytes]:
            return set(admin.scan_iter(match="removed:*", count=10_000))

        before = keys()
        with pytest.raises(Forbidden, match="with a URL of Redis, not of the service"):
            remote.delete_namespace()
        assert keys() == before
        assert remote.queue("q").enqueue().created
        # This is the remedy.
        assert direct.delete_namespace() > 0
        assert keys() == set()


def test_a_worker_with_schedules_and_routes_works_under_the_user_of_the_service(
    server: ValkeyServer, tmp_path: Path
) -> None:
    server.call("ACL", "LOG", "RESET")
    with (
        run_event_process(url(server, EVENTS), NAMESPACE, tmp_path / "lock", relays=False),
        Worker(url(server, SERVICE), NAMESPACE, tmp_path, app="tests.fault.recurring_app:app") as worker,
        TaskApp(url(server, SERVICE), namespace=NAMESPACE, drive=False) as app,
    ):
        app.route("mail.send", to="tickwheel", share=0.5)
        assert app.routes()["mail.send"].share == 0.5
        worker.wait_until_recorded("tick", times=2)
        assert worker.stop(30) == 0
    assert server.call("ACL", "LOG") == []


def test_the_users_of_earlier_versions_may_still_be_used(server: ValkeyServer, tmp_path: Path) -> None:
    earlier = "+config|get +client|setinfo"
    for user, rights in ((SERVICE, ""), (EVENTS, ""), (OPERATOR, "+scan +client|list +client|setname")):
        server.call("ACL", "SETUSER", user.name, *earlier.split(), *rights.split())
    try:
        with (
            Tickwheel(url(server, SERVICE), namespace=NAMESPACE, drive=False, durability="fsync") as tickwheel,
            run_event_process(url(server, EVENTS), NAMESPACE, tmp_path / "lock", relays=False),
        ):
            tickwheel.queue("earlier").enqueue(id="m", delay=timedelta(milliseconds=10))
            [message] = tickwheel.queue("earlier").dequeue(wait=WAIT)
            message.complete()
            done = subprocess.run(
                [*DOCTOR, "--json", "--url", url(server, OPERATOR)],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        findings = {finding["check"]: finding for finding in json.loads(done.stdout)}
        assert "rights" not in findings
        assert (findings["durability"]["verdict"], findings["records"]["verdict"]) == ("ok", "ok")
    finally:
        for user in (SERVICE, EVENTS, OPERATOR):
            server.call("ACL", "SETUSER", user.name, "reset", *user.rule.split()[2:])


def test_no_user_has_a_dangerous_command_but_info(server: ValkeyServer) -> None:
    dangerous = {*server.call("ACL", "CAT", "admin"), *server.call("ACL", "CAT", "dangerous")}
    for user in (SERVICE, EVENTS, OPERATOR):
        allowed = {word[1:] for word in user.rule.split() if word.startswith("+")}
        assert allowed & dangerous == {"info"}


def assert_no_user_has_unused_rights(server: ValkeyServer) -> None:
    called = {name.removeprefix("cmdstat_") for name in server.call("INFO", "commandstats")}
    scripts = "".join(file.read_text() for file in (Path(__file__).parents[2] / "lua").glob("*.lua"))
    called |= {name.lower() for name in re.findall(r"call\('([A-Z]+)'", scripts)}
    allowed = {word[1:] for user in (SERVICE, EVENTS, OPERATOR) for word in user.rule.split() if word.startswith("+")}
    assert allowed - called - ELSEWHERE == set()


def is_deleted(tickwheel: Tickwheel, name: str) -> bool:
    """Delete a queue with its messages. Return whether all its events were published before."""
    try:
        tickwheel.delete_queue(name, purge=True)
    except QueueNotEmpty:
        return False
    return True


def use_every_operation(tickwheel: Tickwheel, name: str) -> None:
    """Call every operation, and wait for the work of the event process."""
    plain = tickwheel.create_queue(f"{name}-plain", max_attempts=2, backoff=timedelta(0), forecast=True)
    owned = tickwheel.create_queue(f"{name}-owned", exclusive_key="owner", lease=timedelta(seconds=1))
    plain.enqueue_many(NewMessage(b"x" * 3_000, id=f"m{n}", metadata={"region": "eu"}) for n in range(6))
    plain.enqueue(b"later", id="later", delay=timedelta(milliseconds=300), metadata={"region": "us"})
    plain.enqueue(b"moved", id="moved", delay=timedelta(hours=1))
    plain.reschedule("moved", delay=timedelta(milliseconds=100), deadline=timedelta(days=-1))
    [moved] = plain.dequeue(wait=WAIT, where=None, worker="w")
    moved.complete()
    # A wait for several queues: one of them does not exist, and no queue has a message.
    waiting = Caller(tickwheel, [Tickets(owned.name), Tickets(f"{name}-absent")])
    assert (waiting.take()[1], waiting.take(0.05)[1]) == ([], [])
    [later] = plain.dequeue(wait=WAIT, where={"region": "us"})
    later.extend(timedelta(seconds=30))
    later.complete()
    first, second, third = plain.dequeue(limit=3, request_id=f"{name}:1")
    plain.complete_many([first])
    for message in (second, third):
        message.fail("again", retry_in=timedelta(0))
    released, broken = plain.dequeue(limit=2)
    released.release()
    broken.fail("for good", final=True)
    assert plain.redrive(broken.id).state == "pending"
    tickwheel.set_setting(f"{name}-setting", "on")
    assert tickwheel.setting(f"{name}-setting") == tickwheel.settings()[f"{name}-setting"] == "on"
    tickwheel.set_setting(f"{name}-setting", None)
    plain.cancel("m5")
    plain.purge(["cancelled"])
    plain.purge()
    plain.enqueue(b"x", id="m4")
    tickwheel.create_queue(f"{name}-deleted")
    tickwheel.delete_queue(f"{name}-deleted")
    # A deletion with all messages: bodies, exclusive values, leases and timers.
    purged = tickwheel.create_queue(f"{name}-purged", exclusive_key="owner")
    purged.enqueue_many(NewMessage(b"x" * 3_000, id=f"p{n}", metadata={"owner": f"o{n % 2}"}) for n in range(4))
    purged.enqueue(b"x", id="later", delay=timedelta(hours=1), metadata={"owner": "o1"})
    assert purged.dequeue()
    eventually(lambda: is_deleted(tickwheel, purged.name), "the relay has published the events of the queue", 60)
    for n, value in enumerate(("ann", "ann", "bob")):
        owned.enqueue(b"x", id=f"o{n}", metadata={"owner": value})
    taken = owned.dequeue(limit=3, consistency="exact")
    assert len(taken) == 2
    # The leases expire, and the messages are delivered again.
    again = [message for _ in range(2) for message in owned.dequeue(wait=WAIT)]
    with pytest.raises(LeaseLost):
        taken[0].complete()
    for message in again:
        message.complete()
    assert plain.depth(where={"region": "eu"}) >= 0
    plain.counts(), plain.lateness(), plain.forecast(minutes=5), plain.explain("m4"), list(plain.messages())
    # A wait for the end of a message subscribes to a channel.
    assert plain.get("m4", wait=0.05).state == "pending"
    plain.block(), plain.unblock()
    # Only an administrator of the server has the commands that find all clients and keys.
    with pytest.raises(Forbidden, match="tickwheel namespace delete"):
        tickwheel.delete_namespace()
    assert {queue.name for queue in tickwheel.queues()} >= {f"{name}-plain", f"{name}-owned"}


def test_a_user_without_its_password_is_refused(server: ValkeyServer) -> None:
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(f"redis://{SERVICE.name}:wrong@{server.address}").ping()


def test_acl_prints_lines_for_a_file_and_separately_the_passwords() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tickwheel", "acl", "--namespace", "shop"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = ["shop-service", "shop-events", "shop-operator"]
    assert [line.split()[1] for line in done.stdout.splitlines()] == names
    passwords = [line.partition(f"{name}:")[2].partition("@")[0] for name, line in zip(names, done.stderr.splitlines())]  # noqa: B905
    assert all(len(word.rpartition(":")[2]) >= 43 for word in passwords)
    assert not any(word.rpartition(":")[2] in done.stdout for word in passwords)
