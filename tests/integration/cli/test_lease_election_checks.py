"""Commands for operators in a namespace whose event processes elect leaders by lease."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild
from tests.integration.cli.command_runner import Run, document
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lease_row import LAST_RESORT
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


class Claims:
    """The claim of the namespace's shard."""

    def __init__(self, server: Any, namespace: str) -> None:
        self._server, self.key, self.election = server, shard_key(namespace, 0, "clock"), election_key(namespace)

    def is_held_by(self, process: EventProcessChild) -> bool:
        holder, owner = self._server.hmget(self.key, "holder", "owner")
        return holder is not None and owner == name_of(process).encode()


def reads_inbox(server: Any) -> bool:
    """Return whether the driver of a shard waits for timers."""
    return any(line["name"].startswith("tickwheel-events:") and line["cmd"] == "xread" for line in server.client_list())


def name_of(process: EventProcessChild) -> str:
    return f"{socket.gethostname()}:{process.pid}"


@pytest.fixture
def claims(cli_client: Tickwheel, server: Any) -> Claims:
    return Claims(server, cli_client._context.namespace)


@contextmanager
def event_process(server: PrivateServer, claims: Claims, log: Path, **options: Any) -> Iterator[EventProcessChild]:
    """Run an event process with an election by lease."""
    namespace = claims.key.partition(":")[0]
    with EventProcessChild(server.url, namespace, log, election="lease", **options) as process:
        yield process


def findings(run: Run, code: int = 0) -> dict[str, tuple[str, str]]:
    """Return the verdict and the text of each finding of doctor, by check. Of each check, the last finding counts."""
    return {
        finding["check"]: (finding["verdict"], finding["text"])
        for finding in document(run("doctor", "--json", code=code))
    }


def test_doctor_names_the_leader_and_the_process_that_stands_by(
    run: Run, claims: Claims, tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    with event_process(tickwheel_server, claims, tmp_path / "one") as one:
        eventually(lambda: claims.is_held_by(one), "the process leads")
        with event_process(tickwheel_server, claims, tmp_path / "another") as another:
            text = f"by lease: {name_of(one)} leads shard 0; {name_of(another)} stands by"
            swapped = f"by lease: {name_of(another)} stands by; {name_of(one)} leads shard 0"
            eventually(lambda: findings(run)["election"] in (("ok", text), ("ok", swapped)), "both take part", 60)
            found = findings(run)
    assert found["driver"][0] == "ok"
    assert found["driver"][1].startswith("processes that are elected by lease drive every shard, epoch")
    assert found["records"][0] == "ok"


def test_doctor_reports_that_the_only_process_is_frozen_and_that_no_process_stands(
    run: Run, claims: Claims, tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    with event_process(tickwheel_server, claims, tmp_path / "one") as process:
        eventually(lambda: claims.is_held_by(process), "the process leads")
        with process.paused():
            verdict, text = findings(run)["election"]
        assert verdict == "warning"
        assert f"{name_of(process)} did not write to it for 4 s" in text
        assert process.stop(within=10) == 0
    verdict, text = findings(run)["election"]
    assert (verdict, text.startswith("no event process takes part in the election by lease: run")) == ("warning", True)


def test_a_reset_forgets_the_election_by_lease_and_lock_files_elect_again(
    run: Run, claims: Claims, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    with event_process(tickwheel_server, claims, tmp_path / "one") as process:
        eventually(lambda: claims.is_held_by(process), "the process leads")
        eventually(lambda: reads_inbox(server), "the driver reads the inbox")
        assert "is being driven" in run("shards", "reset-epoch", "--yes", code=1).stderr
        assert process.stop(within=10) == 0
    assert server.exists(claims.election)
    assert document(run("shards", "--json"))[0]["election"] == "lease"
    assert document(run("shards", "--json", "reset-epoch", "--yes"))["forgotten"] == [0]
    assert not server.exists(claims.election)
    assert not {b"fence", b"election", b"owner", b"holder"} & set(server.hkeys(claims.key))
    namespace = claims.key.partition(":")[0]
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock"):
        eventually(lambda: server.hget(claims.key, "election") == b"lockfile", "a process with a lock file leads")
    assert "election" not in findings(run)


@pytest.mark.parametrize("command", [("shards", "reset-epoch"), ("namespace", "delete")], ids=["reset", "delete"])
def test_commands_for_an_idle_namespace_are_refused_while_a_process_stands_by(
    run: Run, claims: Claims, tickwheel_server: PrivateServer, server: Any, command: tuple[str, ...]
) -> None:
    namespace = claims.key.partition(":")[0]
    # Nobody has claimed the shard, so the process of last resort does not claim it yet either.
    with run_event_process(tickwheel_server.url, namespace, LeaseOptions(1.0, LAST_RESORT)):
        eventually(lambda: server.exists(claims.election), "the process takes part")
        assert "take part in the election" in run(*command, "--yes", code=1).stderr
    assert not server.hget(claims.key, "fence")
    run(*command, "--yes")


def test_a_namespace_with_an_election_by_lease_is_deleted_whole(
    run: Run, claims: Claims, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    with event_process(tickwheel_server, claims, tmp_path / "one") as process:
        eventually(lambda: claims.is_held_by(process), "the process leads")
        assert process.stop(within=10) == 0
    assert server.exists(claims.election)
    run("namespace", "delete", "--yes")
    assert server.keys(f"{claims.key.partition(':')[0]}:*") == []
