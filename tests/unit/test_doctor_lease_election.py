"""What doctor finds about an election by lease, from the rows of its members and the claims of the shards."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest

from tests.unit.test_doctor_health import SHARD, judge
from tickwheel.doctor import lease_members
from tickwheel.doctor.finding import Finding
from tickwheel.doctor.lease_health import check_election, shard_ranges
from tickwheel.doctor.lease_members import LeaseMembers, Rows, watch_members
from tickwheel.doctor.shard_facts import ShardFacts
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT, Row
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.unit

SHARDS = [
    replace(SHARD, number=n, election="lease", locked=False, fence=pack_fence(3, 1), leader="host:1") for n in range(3)
]


def row(
    name: str,
    drives: Sequence[int] = (),
    avoids: Sequence[int] = (),
    rank: int = EVENT_PROCESS,
    beat: int = 1,
    lease_ms: int = 0,
) -> Row:
    return Row(rank, beat, frozenset(), frozenset(drives), frozenset(avoids), name, lease_ms)


def check(members: LeaseMembers | None, shards: list[ShardFacts] = SHARDS) -> list[tuple[str, str]]:
    """Return the verdict and the text of each finding."""
    findings: list[Finding] = list(check_election(shards, members))
    assert {finding.check for finding in findings} <= {"election"}
    return [(finding.verdict, finding.text) for finding in findings]


def test_the_leaders_and_the_processes_that_stand_by_are_named() -> None:
    active = {
        "c": row("host:3", rank=LAST_RESORT),
        "b": row("host:2", drives=[2]),
        "a": row("host:1", drives=[0, 1]),
    }
    text = "by lease: host:1 leads shard 0 to 1; host:2 leads shard 2; host:3 (last resort) stands by"
    assert check(LeaseMembers(active)) == [("ok", text)]


def test_a_namespace_with_another_kind_of_election_has_no_finding() -> None:
    assert check(LeaseMembers(), [SHARD]) == []
    assert check(None, [SHARD]) == []


def test_a_user_who_may_not_read_the_election_gets_no_warning() -> None:
    assert check(None) == [("ok", "by lease; the processes that take part were not read")]


def test_an_election_in_which_nobody_takes_part_is_reported_with_the_remedy() -> None:
    [(verdict, text)] = check(LeaseMembers())
    assert verdict == "warning"
    assert text == (
        "no event process takes part in the election by lease: run `tickwheel events --election lease`; a worker or a"
        " service with `--drive auto` drives, too, or logs why it does not"
    )
    [(verdict, text)] = check(LeaseMembers({}, {"a": row("host:1", drives=[0, 1, 2])}))
    assert "(host:1 did not write to it for 4 s)" in text


def test_a_member_that_does_not_write_its_row_is_reported() -> None:
    members = LeaseMembers({"a": row("host:1", drives=[0, 1, 2])}, {"b": row("host:2", drives=[1])})
    [_, (verdict, text)] = check(members)
    assert verdict == "warning"
    assert text.startswith("host:2 did not write to the election for 4 s: the process was killed, is frozen or cut off")
    assert text.endswith("earlier version and a --session-timeout of more than 16 s")
    slow = LeaseMembers(members.active, {"b": row("host:2", drives=[1], lease_ms=60_000)}, watched_s=17)
    assert check(slow)[1][1] == (
        "host:2 did not write to the election for 17 s: the process was killed, is frozen or cut off. Then others take"
        " over its shards"
    )


def test_a_shard_that_no_process_drives_is_reported() -> None:
    [_, (verdict, text)] = check(LeaseMembers({"a": row("host:1", drives=[0])}))
    assert (verdict, text.split(" at present")[0]) == ("warning", "no process drives shard 1 to 2")


def test_a_shard_whose_loop_hangs_is_bad_only_if_no_other_process_drives_it() -> None:
    avoiding = row("host:1", drives=[0, 1], avoids=[2])
    driven = check(LeaseMembers({"a": avoiding, "b": row("host:2", drives=[2])}))
    assert [verdict for verdict, _ in driven] == ["ok", "warning"]
    assert driven[1][1].startswith("host:1 cannot drive shard 2: its loop hangs")
    undriven = check(LeaseMembers({"a": avoiding}))
    assert [verdict for verdict, _ in undriven] == ["ok", "warning", "bad"]
    assert undriven[2][1].startswith("no process can drive shard 2: run `tickwheel events")


def test_members_of_a_later_version_are_counted_and_no_shard_is_called_undriven() -> None:
    [(verdict, text)] = check(LeaseMembers({"a": row("host:1", drives=[0])}, newer=2))
    assert (verdict, text) == ("ok", "by lease: host:1 leads shard 0; and 2 of a later version of Tickwheel")


def test_rows_that_no_version_writes_are_counted() -> None:
    [_, (verdict, text)] = check(LeaseMembers({"a": row("host:1", drives=[0, 1, 2])}, unreadable=1))
    assert (verdict, text) == ("warning", "rows that no version of Tickwheel writes: 1")


def test_at_most_ten_processes_are_named() -> None:
    [(_, text)] = check(LeaseMembers({str(n): row(f"host:{n:02}") for n in range(13)}), [])
    assert text.count("stands by") == 10
    assert text.endswith("; and 3 more processes")


@pytest.mark.parametrize(
    ("shards", "text"),
    [([5], "shard 5"), ([0, 1], "shard 0 to 1"), ([7, 0, 1, 2, 4], "shard 0 to 2, 4, 7")],
)
def test_the_numbers_of_shards_are_written_as_ranges(shards: list[int], text: str) -> None:
    assert shard_ranges(shards) == text


def test_the_driver_is_judged_by_the_leader_and_not_by_a_lock_file() -> None:
    assert judge(SHARDS)["driver"].text == "processes that are elected by lease drive every shard, epoch 3"
    stalled = replace(SHARDS[0], oldest_new=b"1-0")
    finding = judge([stalled])["driver"]
    assert finding.verdict == "warning"
    assert finding.text.endswith("host:1 leads the shard, but is frozen or stuck: check the log of the process")
    finding = judge([replace(stalled, leader="")])["driver"]
    assert finding.verdict == "bad"
    assert finding.text.endswith("no event process drives the shard: run `tickwheel events --election lease`")


def watch(*reads: Rows | None) -> LeaseMembers | None:
    """Watch members whose rows are read in this order; the last read is repeated."""
    following = chain(reads, repeat(reads[-1]))
    return watch_members(lambda: next(following))


def test_members_are_active_if_their_rows_change_while_doctor_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    fake_time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(lease_members, "time", fake_time)
    one, same = row("host:1", [0]).pack(1), row("host:2").pack(1)
    later = row("host:1", [0], beat=2).pack(1)
    members = watch(
        {b"a": one, b"b": same}, {b"a": one, b"b": same}, {b"a": later, b"b": same, b"c": b"\xff" + same[1:]}
    )
    assert members is not None
    assert ([*members.active], [*members.unresponsive], members.newer) == (["a"], ["b"], 1)
    assert (members.leader_of(0, "a"), members.leader_of(1, "a"), members.leader_of(0, "b")) == ("host:1", "", "")
    assert watch(None) is None
    assert watch({}) == LeaseMembers()
    removed = watch({b"a": one}, {})
    assert removed == LeaseMembers()
    damaged = watch({b"a": b"\x01"})
    assert damaged == LeaseMembers(unreadable=1)


@pytest.mark.parametrize(("lease_ms", "watched_s"), [(0, 4), (4_000, 4), (20_000, 7), (60_000, 17)])
def test_a_row_is_watched_for_a_quarter_of_its_lease_and_a_little_longer(
    monkeypatch: pytest.MonkeyPatch, lease_ms: int, watched_s: int
) -> None:
    """Each reading of the clock takes a second."""
    clock = count()
    fake_time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(lease_members, "time", fake_time)
    same = row("host:1", [0], lease_ms=lease_ms).pack(1)
    # The member writes its row a second before the time is over.
    later = row("host:1", [0], beat=2, lease_ms=lease_ms).pack(1)
    assert watch(*[{b"a": same}] * (watched_s - 1), {b"a": later}) == LeaseMembers({"a": Row.unpack(later)})
    clock = count()
    killed = watch({b"a": same})
    assert killed is not None
    assert ([*killed.active], [*killed.unresponsive], killed.watched_s) == ([], ["a"], watched_s)
    assert next(clock) == watched_s + 1
