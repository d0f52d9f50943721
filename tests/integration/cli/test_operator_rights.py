"""Commands of an operator whose user sees only its namespace: they work, and report what they did not check."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.cli.command_runner import Run, answer_on_terminal, document
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lease_row import LAST_RESORT
from tickwheel.redis.acl import users
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import election_key, queue_key, shard_key, slot_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(
    cli_client: Tickwheel, run: Run, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A client of the default user. The commands of the test run as the operator of the namespace."""
    run("enqueue", "jobs", "x", "--delay", "1h")
    operator = users(cli_client._context.namespace)[2]
    url = f"{tickwheel_server.url.replace('unix://', f'unix://{operator.name}@')}?password={operator.password}"
    with tickwheel_server.client() as client:
        client.execute_command("ACL", "SETUSER", *operator.rule.split()[1:])
        monkeypatch.setenv("TICKWHEEL_URL", url)
        yield client
        client.execute_command("ACL", "DELUSER", operator.name)


def findings(run: Run, code: int = 0) -> dict[str, str]:
    """Return the text of each bad finding and of `rights`, by the name of the check."""
    return {
        finding["check"]: finding["text"]
        for finding in document(run("doctor", "--json", code=code))
        if finding["verdict"] == "bad" or finding["check"] == "rights"
    }


def test_doctor_audits_the_namespace_and_names_what_it_did_not_check(run: Run, admin: Any) -> None:
    found = findings(run)
    assert found.keys() == {"rights"}
    assert "were not checked" in found["rights"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda server, key, _: server.set(key, "x"), "its type is string, not hash"),
        (lambda server, _, messages: server.expire(messages, 1_000), "it has an expiry"),
    ],
    ids=["type", "expiry"],
)
def test_doctor_checks_each_key_that_the_namespace_implies(
    run: Run, admin: Any, cli_client: Tickwheel, damage: Callable[[Any, str, str], object], text: str
) -> None:
    namespace = cli_client._context.namespace
    damage(admin, queue_key(namespace, 0, "jobs", "locks"), shard_key(namespace, 0, "messages"))
    assert text in findings(run, code=1)["records"]


def test_doctor_reports_a_message_whose_timer_is_in_a_slot_outside_the_wheel(
    run: Run, admin: Any, cli_client: Tickwheel
) -> None:
    namespace = cli_client._context.namespace
    [(_, fields)] = admin.xrange(shard_key(namespace, 0, "inbox"))
    admin.delete(shard_key(namespace, 0, "inbox"))
    admin.rpush(slot_key(namespace, 0, 5, 17), fields[b"t"])
    assert "timer" in findings(run, code=1)["records"]


def test_epochs_are_reset_only_after_a_person_confirms_that_no_process_drives(
    run: Run, admin: Any, cli_client: Tickwheel
) -> None:
    clock = shard_key(cli_client._context.namespace, 0, "clock")
    admin.hset(clock, "fence", pack_fence(1, 1))
    refused = run("shards", "reset-epoch", "--yes", code=1).stderr
    assert "this user may not run CLIENT LIST: run the command as an administrator" in refused
    assert admin.hexists(clock, "fence")
    code, text = answer_on_terminal("y", "shards", "reset-epoch")
    assert (code, "is every event process ended?" in text) == (0, True)
    assert not admin.hexists(clock, "fence")


def test_epochs_are_not_reset_while_processes_take_part_in_the_election(
    run: Run, admin: Any, cli_client: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    namespace = cli_client._context.namespace
    with run_event_process(tickwheel_server.url, namespace, LeaseOptions(1.0, LAST_RESORT)):
        eventually(lambda: admin.exists(election_key(namespace)), "the process takes part")
        code, text = answer_on_terminal("y", "shards", "reset-epoch")
    assert code == 1
    assert "processes take part in the election by lease" in text
    assert "clients with `drive=True`" in text


@pytest.mark.parametrize("granted", [(), ("+client|list",)], ids=["operator", "without SCAN"])
def test_a_namespace_is_deleted_only_by_an_administrator(
    run: Run, admin: Any, cli_client: Tickwheel, granted: tuple[str, ...]
) -> None:
    namespace = cli_client._context.namespace
    operator = f"{namespace}-operator"
    admin.execute_command("ACL", "SETUSER", operator, *granted)
    before = set(admin.scan_iter(match=f"{namespace}:*", count=10_000))
    refused = run("namespace", "delete", "--yes", code=1).stderr
    assert "run `tickwheel namespace delete` as an administrator of the server, with a URL of Redis" in refused
    assert set(admin.scan_iter(match=f"{namespace}:*", count=10_000)) == before
    run("counts")
    admin.execute_command("ACL", "SETUSER", operator, "+client|list", "+scan")
    run("namespace", "delete", "--yes")
    assert not set(admin.scan_iter(match=f"{namespace}:*", count=10_000))
