"""Commands that look at a whole namespace or measure it: doctor and bench."""

import pytest

from tests.integration.cli.running import Run, document
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def test_doctor_finds_a_healthy_namespace_healthy(run: Run) -> None:
    run("enqueue", "jobs", "x")
    found = document(run("doctor", "--json"))
    assert {finding["verdict"] for finding in found} <= {"ok", "warning"}
    assert {"server", "memory", "durability", "clock", "driver", "inbox", "outbox", "queues", "records"} <= {
        finding["check"] for finding in found
    }


def test_doctor_finds_a_wrong_record_and_ends_with_code_1(
    run: Run, place: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    run("enqueue", "jobs", "x")
    with tickwheel_server.client() as client:
        client.hset(f"{place._core.namespace}:{{0}}:q:jobs:counts", "2", 7)
    found = document(run("doctor", "--json", code=1))
    assert [finding["check"] for finding in found if finding["verdict"] == "bad"] == ["records"]
    assert "BAD" in run("doctor", code=1).stdout


def test_doctor_does_not_create_what_it_looks_for(run: Run, tickwheel_server: PrivateServer) -> None:
    result = run("doctor", "--namespace", "cli-nowhere", code=4)
    assert "there is no namespace 'cli-nowhere'" in result.stderr
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="cli-nowhere*")) == []


def test_doctor_says_that_nobody_drives(run: Run, place: Tickwheel, tickwheel_server: PrivateServer) -> None:
    run("enqueue", "jobs", "x", "--delay", "1h")
    with tickwheel_server.client() as client:
        inbox = f"{place._core.namespace}:{{0}}:inbox"
        [(_, fields)] = client.xrange(inbox)
        client.delete(inbox)
        # As if it had been there for ten seconds.
        seconds, _ = client.time()
        client.xadd(inbox, fields, id=f"{(seconds - 10) * 1000}-1")
    found = document(run("doctor", "--quick", "--json", code=1))
    [driver] = [finding for finding in found if finding["check"] == "driver"]
    assert "no event process drives it; run `tickwheel events`" in driver["text"]


def test_bench_measures_and_leaves_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tickwheel_server: PrivateServer
) -> None:
    monkeypatch.delenv("TICKWHEEL_NAMESPACE")
    measured = document(run("bench", "--messages", 1_000, "--json"))
    assert set(measured["per_second"]) == {"enqueue", "dequeue", "complete"}
    assert all(rate > 0 for each in measured["per_second"].values() for rate in each.values())
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="bench-*")) == []
