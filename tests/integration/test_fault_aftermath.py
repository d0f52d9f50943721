"""The final checks of some fault harness runs, on deliberately damaged data: each check detects its damage."""

import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.harness import collect, run
from tests.fault.harness.aftermath import cut_file, flip_byte, let_retention_pass
from tests.fault.harness.deployment import Deployment
from tests.fault.harness.elections import LockFiles
from tests.fault.harness.rows import plan
from tests.fault.harness.run_evidence import Violation
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tickwheel import NewMessage, Tickwheel
from tickwheel.doctor import audit
from tickwheel.storage.keys import queue_key, shard_key

pytestmark = pytest.mark.integration

COPIES = 4
MESSAGES = shard_key(NAMESPACE, 0, "messages")
INBOX = shard_key(NAMESPACE, 0, "inbox")
LOCKS = queue_key(NAMESPACE, 0, "q", "locks")
COUNTS = queue_key(NAMESPACE, 0, "q", "counts")
# The maximum that is cut from the file, and a size with which almost every byte of the file is filler.
AS_CUT, ALMOST_ALL = 4_096, 4 << 20


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemUnderTest]:
    """A server with a queue, without event processes and clients."""
    monkeypatch.setattr("tests.fault.harness.system_under_test.DRIVERS", 0)
    monkeypatch.setattr("tests.fault.harness.aftermath._COPIES", COPIES)
    monkeypatch.setattr("tests.fault.harness.aftermath._PASSES_S", 0.2)
    with (
        Deployment(tmp_path, proxied=False, faked="") as place,
        Tickwheel(place.own_url, namespace=NAMESPACE, shards=1, timeout=timedelta(seconds=5)) as tickwheel,
    ):
        tickwheel.create_queue("q")
        yield SystemUnderTest(plan("F18", 1), place, tickwheel, LockFiles(tmp_path), None)


def enqueue(system: SystemUnderTest, count: int) -> None:
    system.tickwheel.queue("q").enqueue_many([NewMessage(id=f"m-{n}") for n in range(count)])


def fill(client: Any, size: int) -> None:
    """Write a foreign key that no state depends on and that the audit ignores."""
    client.set("filler", bytes(size))


def copy_disk(system: SystemUnderTest) -> Path:
    """Copy the data of the run; later changes by the server have no effect on the copy."""
    disk = system.folder / "before"
    shutil.copytree(system.place.disk, disk)
    system.place.disk = disk
    return disk


def findings(system: SystemUnderTest) -> list[str]:
    return system.tickwheel._run(audit(system.tickwheel._context))


def test_a_file_cut_at_any_end_of_a_transition_is_sound(system: SystemUnderTest) -> None:
    enqueue(system, 30)
    outcome = cut_file(system)
    assert (outcome.violations, outcome.faults) == ([], COPIES)


def test_a_file_cut_inside_a_transition_is_noticed(system: SystemUnderTest) -> None:
    enqueue(system, 1)
    with system.place.client() as client:
        # This is how a script that is not atomic fails: for a moment the message does not exist.
        [(field, record)] = client.hgetall(MESSAGES).items()
        client.hdel(MESSAGES, field)
        fill(client, AS_CUT)
        client.hset(MESSAGES, field, record)
    assert findings(system) == []

    outcome = cut_file(system)
    assert {violation.invariant for violation in outcome.violations} == {"I4"}
    assert len({violation.text.partition(":")[0] for violation in outcome.violations}) == COPIES


def test_flipped_bytes_are_refused_or_reported_or_make_no_difference(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fault.harness.aftermath._COPIES", 12)
    enqueue(system, 30)
    outcome = flip_byte(system)
    assert (outcome.violations, outcome.faults) == ([], 12)
    noticed = re.fullmatch(r"(\d+) refused, (\d+) reported, (\d+) no state differs", outcome.marks[0])
    assert noticed is not None
    refused, reported, same = map(int, noticed.groups())
    # It is extremely unlikely that all twelve flips make no difference.
    assert refused + reported > 0
    assert refused + reported + same == 12


def test_an_unreported_wrong_state_is_noticed(system: SystemUnderTest) -> None:
    with system.place.client() as client:
        fill(client, ALMOST_ALL)
    copy_disk(system)
    enqueue(system, 1)
    outcome = flip_byte(system)
    assert [violation.invariant for violation in outcome.violations] == ["I4"] * COPIES


def test_the_audit_findings_of_a_flipped_byte_are_reported(system: SystemUnderTest) -> None:
    enqueue(system, 1)
    with system.place.client() as client:
        client.delete(MESSAGES)
        fill(client, ALMOST_ALL)
    outcome = flip_byte(system)
    assert (outcome.violations, outcome.marks) == ([], [f"0 refused, {COPIES} reported, 0 no state differs"])


def test_a_file_that_the_server_refuses_is_reported(system: SystemUnderTest) -> None:
    disk = copy_disk(system)
    [file] = disk.glob("appendonlydir/*.incr.aof")
    file.write_bytes(b"no command\r\n" + file.read_bytes())
    outcome = flip_byte(system)
    assert (outcome.violations, outcome.marks) == ([], [f"{COPIES} refused, 0 reported, 0 no state differs"])


def test_an_empty_namespace_has_no_leftovers(system: SystemUnderTest) -> None:
    assert let_retention_pass(system).violations == []
    assert system.place.faketime.read_text() == "+360\n"


def test_leftovers_after_the_retention_are_noticed(system: SystemUnderTest) -> None:
    enqueue(system, 1)
    [message] = system.tickwheel.queue("q").dequeue()
    message.complete()
    outcome = let_retention_pass(system)
    assert Violation("I6", f"{MESSAGES} is left over") in outcome.violations


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("HSET", LOCKS, "value", "Rended"), LOCKS),
        (("HSET", COUNTS, "pending", 1), COUNTS),
        (("XADD", INBOX, "*", "field", "value"), INBOX),
    ],
)
def test_each_leftover_key_is_noticed(system: SystemUnderTest, command: tuple[str, ...], key: str) -> None:
    with system.place.client() as client:
        client.execute_command(*command)
    assert let_retention_pass(system).violations == [Violation("I6", f"{key} is left over")]


def test_messages_that_have_not_ended_are_reported_once_none_has_ended_for_long(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ENDS_S", 0.3)
    assert run._until_all_ended(system) == {}
    enqueue(system, 2)
    assert run._until_all_ended(system) == {"pending": 2}


def test_the_wait_continues_while_messages_end_one_by_one(
    system: SystemUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ENDS_S", 1.0)
    queue = system.tickwheel.queue("q")
    enqueue(system, 15)
    unfinished = collect.unfinished

    def after_one_more(tickwheel: Tickwheel) -> dict[str, int]:
        for message in queue.dequeue():
            message.complete()
        return unfinished(tickwheel)

    monkeypatch.setattr(run, "unfinished", after_one_more)
    assert run._until_all_ended(system) == {}
