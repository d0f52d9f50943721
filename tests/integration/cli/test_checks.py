"""Commands that check or measure a whole namespace: doctor and bench."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer
from tests.integration.cli.command_runner import Run, document
from tests.support.lock_file_driver import driving_with_lock_file
from tests.support.paused_process import pause
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.doctor.followers import Followers
from tickwheel.doctor.health import check_shards
from tickwheel.doctor.server_health import read_server
from tickwheel.doctor.shard_facts import read_shard
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def test_doctor_finds_a_healthy_namespace_healthy(run: Run) -> None:
    run("enqueue", "jobs", "x")
    findings = document(run("doctor", "--json"))
    assert {finding["verdict"] for finding in findings} <= {"ok", "warning"}
    assert {"server", "memory", "durability", "clock", "driver", "inbox", "outbox", "queues", "records"} <= {
        finding["check"] for finding in findings
    }


def test_doctor_checks_every_server_of_a_cluster(
    run: Run, redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKWHEEL_URL", redis_cluster.url)
    with Tickwheel(redis_cluster.url, namespace=os.environ["TICKWHEEL_NAMESPACE"], shards=12):
        run("enqueue", "jobs", "x")
        findings = document(run("doctor", "--json"))
    servers = [finding["text"].split(": ")[0] for finding in findings if finding["check"] == "server"]
    assert sorted(servers) == sorted(node.address for node in redis_cluster.nodes if is_primary(node))
    assert {"check": "records", "verdict": "ok"}.items() <= findings[-1].items()


def is_primary(node: ValkeyServer) -> bool:
    return bool(node.call("ROLE")[0] == "master")


def test_doctor_finds_a_wrong_record_and_exits_with_code_1(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    run("enqueue", "jobs", "x")
    with tickwheel_server.client() as client:
        client.hset(queue_key(cli_client._context.namespace, 0, "jobs", "counts"), "2", 7)
    findings = document(run("doctor", "--json", code=1))
    assert [finding["check"] for finding in findings if finding["verdict"] == "bad"] == ["records"]
    assert "BAD" in run("doctor", code=1).stdout


def test_doctor_does_not_create_the_namespace_that_it_checks(run: Run, tickwheel_server: PrivateServer) -> None:
    result = run("doctor", "--namespace", "cli-nowhere", code=4)
    assert "there is no namespace 'cli-nowhere'" in result.stderr
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="cli-nowhere*")) == []


@pytest.fixture
def old_timer(run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer) -> Callable[..., None]:
    """Put a timer into the inbox as if it had been there for ten seconds, or with another age by its id."""

    def put(age_s: int = 10) -> None:
        run("enqueue", "jobs", "x", "--delay", "1h")
        with tickwheel_server.client() as client:
            inbox = shard_key(cli_client._context.namespace, 0, "inbox")
            [(_, fields)] = client.xrange(inbox)
            client.delete(inbox)
            seconds, _ = client.time()
            client.xadd(inbox, fields, id=f"{(seconds - age_s) * 1000}-1")

    return put


@pytest.fixture
def wait_for_claim(cli_client: Tickwheel, tickwheel_server: PrivateServer) -> Callable[[], None]:
    """Wait until an event process has claimed the shard. Within seconds, the process files the timers of the inbox."""

    def wait() -> None:
        with tickwheel_server.client() as client:
            eventually(
                lambda: client.hget(shard_key(cli_client._context.namespace, 0, "clock"), "fence"),
                "the shard is claimed",
            )

    return wait


def driver_finding(run: Run, code: int = 0) -> tuple[str, str]:
    """Return the finding of doctor about the process that drives."""
    findings = document(run("doctor", "--quick", "--json", code=code))
    [driver] = [finding for finding in findings if finding["check"] == "driver"]
    return driver["verdict"], driver["text"]


def test_doctor_reports_that_no_process_drives(run: Run, old_timer: Callable[[], None]) -> None:
    old_timer()
    verdict, text = driver_finding(run, code=1)
    assert verdict == "bad"
    assert "no event process drives the shard: run `tickwheel events`" in text


def test_doctor_raises_no_alarm_when_an_event_process_has_just_started(
    cli_client: Tickwheel,
    run: Run,
    old_timer: Callable[[], None],
    wait_for_claim: Callable[[], None],
    tickwheel_server: PrivateServer,
) -> None:
    old_timer()
    with driving_with_lock_file(tickwheel_server.url, cli_client._context.namespace):
        wait_for_claim()
        verdict, text = driver_finding(run)
    assert (verdict, text.split(",")[0]) == ("ok", "a process of this host drives every shard")


def test_doctor_reports_that_no_process_drives_although_the_clock_was_ahead_before(
    run: Run, old_timer: Callable[..., None]
) -> None:
    old_timer(-600)
    verdict, text = driver_finding(run, code=1)
    assert verdict == "bad"
    assert "timers wait, and the wheel made no progress during the check; no event process drives the shard" in text
    [shard] = document(run("shards", "--json"))
    assert (shard["inbox"], shard["oldest_ms"]) == (1, None)
    assert "unknown" in run("shards").stdout


def test_doctor_raises_no_alarm_for_a_driven_shard_whose_clock_was_ahead_before(
    cli_client: Tickwheel,
    run: Run,
    old_timer: Callable[..., None],
    wait_for_claim: Callable[[], None],
    tickwheel_server: PrivateServer,
) -> None:
    with driving_with_lock_file(tickwheel_server.url, cli_client._context.namespace):
        wait_for_claim()
        old_timer(-600)
        assert driver_finding(run)[0] == "ok"


def test_doctor_compares_the_time_of_the_wheel_with_the_clock_of_the_same_moment(
    cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any
) -> None:
    context = cli_client._context
    queue, clock = cli_client.queue("jobs"), shard_key(context.namespace, 0, "clock")
    facts = cli_client._run(read_server(context, 0))

    def has_advanced() -> bool:
        """Drive the wheel to the present time, and return whether it is far from the time of ``facts``."""
        queue.enqueue(delay=timedelta(milliseconds=10))
        return int(server.hget(clock, "high") or 0) > facts.clock.server_ms + 1.5 * context.clock_guard_ms

    with Tickwheel(tickwheel_server.url, namespace=context.namespace, drive=True):
        eventually(has_advanced, "the wheel advances while doctor reads")
        shard = cli_client._run(read_shard(context, 0, lambda _: True))
    findings = {finding.check: finding for finding in check_shards(context, [shard], Followers(), embedded=False)}
    assert findings.keys() == {"driver", "inbox", "outbox"}


def test_doctor_recognizes_an_event_process_with_another_lock_file(
    cli_client: Tickwheel,
    run: Run,
    old_timer: Callable[[], None],
    wait_for_claim: Callable[[], None],
    tickwheel_server: PrivateServer,
    tmp_path: Path,
) -> None:
    old_timer()
    command = [sys.executable, "-m", "tickwheel.driving", "--until-eof", "--namespace", cli_client._context.namespace]
    environment = os.environ | {"TICKWHEEL_URL": tickwheel_server.url}
    process = subprocess.Popen(
        [*command, "--lock", str(tmp_path / "lock")], stdin=subprocess.PIPE, env=environment, start_new_session=True
    )
    try:
        wait_for_claim()
        verdict, text = driver_finding(run)
    finally:
        process.communicate()
    assert verdict == "ok"
    # The second text appears if the event process has filed all timers before doctor checks.
    assert text.startswith(
        ("an event process drives the namespace, with another lock file", "event processes follow every shard's inbox")
    )


def test_doctor_reports_that_an_event_process_has_stalled(
    cli_client: Tickwheel, run: Run, old_timer: Callable[[], None], tickwheel_server: PrivateServer
) -> None:
    with driving_with_lock_file(tickwheel_server.url, cli_client._context.namespace) as pid:
        eventually(
            lambda: driver_finding(run)[1].startswith("a process of this host drives"), "the event process drives"
        )
        pause(pid)
        try:
            old_timer()
            verdict, text = driver_finding(run)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert verdict == "warning"
    assert "a process of this host holds the lock, but is frozen or stuck" in text


def test_bench_measures_and_leaves_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch, tickwheel_server: PrivateServer
) -> None:
    monkeypatch.delenv("TICKWHEEL_NAMESPACE")
    measured = document(run("bench", "--messages", 1_000, "--json"))
    assert set(measured["per_second"]) == {"enqueue", "dequeue", "complete"}
    assert all(rate > 0 for rates in measured["per_second"].values() for rate in rates.values())
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="bench-*")) == []


def test_doctor_reports_a_deletion_that_was_cut_off(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "x")
    deletion = NamespaceDeletion(NamespaceContext(cli_client._context.namespace))
    cli_client._run(deletion.next())
    findings = document(run("doctor", "--json", code=1))
    [text] = [finding["text"] for finding in findings if finding["verdict"] == "bad"]
    assert "is being deleted: repeat `tickwheel namespace delete` if it was cut off" in text
    assert "damaged" not in text


def test_the_timeout_limits_the_wait_of_doctor_for_a_server_that_does_not_answer(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        result = run("doctor", "--url", url, "--timeout", "500ms", code=3)
    assert time.monotonic() - started < 4
    assert "0.5 s" in result.stderr
