"""The verdicts of doctor on the facts that a server and its shards report."""

import struct
from dataclasses import replace

import pytest

from tickwheel.doctor.clock_reading import ClockReading
from tickwheel.doctor.finding import Finding
from tickwheel.doctor.followers import Followers
from tickwheel.doctor.health import check_overdue, check_queues, check_shards
from tickwheel.doctor.overdue import OverdueInShard
from tickwheel.doctor.server_health import ServerFacts, check_server
from tickwheel.doctor.shard_facts import ShardFacts
from tickwheel.doctor.shard_reader import report_damage
from tickwheel.doctor.slots_in_use import SlotsInUse
from tickwheel.errors import Forbidden, TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import QueueRows
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000
HOUR = 3_600_000
INFO = {
    "server_name": "valkey",
    "redis_version": "7.2.4",
    "valkey_version": "9.1.2",
    "role": "master",
    "used_memory": "100",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
}
SETTINGS = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
CLOCK = ClockReading(NOW, NOW, NOW)
SHARD = ShardFacts(0, b"", "", NOW, 0, b"", SlotsInUse(), 0, locked=True, clock=CLOCK)


def clock_ahead(ahead_ms: int, answered_ms: int = 0) -> ClockReading:
    """Return a reading of a clock that was ahead of this host's clock when the request was sent."""
    return ClockReading(NOW, NOW - ahead_ms, NOW - ahead_ms + answered_ms)


def judge(shards: list[ShardFacts], followed: frozenset[int] | None = frozenset()) -> dict[str, Finding]:
    """Return the findings of `check_shards`, by check."""
    context, followers = NamespaceContext("tw"), Followers(followed)
    return {f.check: f for f in check_shards(context, shards, followers, embedded=False)}


@pytest.mark.parametrize(
    ("info", "settings", "check", "verdict"),
    [
        ({}, {}, "memory", "ok"),
        ({"redis_version": "6.2.0"}, {}, "server", "bad"),
        ({"role": "slave"}, {}, "role", "bad"),
        ({"used_memory": "79", "maxmemory": "100"}, {}, "memory", "ok"),
        ({"used_memory": "81", "maxmemory": "100"}, {}, "memory", "warning"),
        ({"maxmemory": "1000", "maxmemory_policy": "allkeys-lru"}, {}, "memory", "bad"),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, {}, "durability", "bad"),
        ({}, {"appendonly": None}, "durability", "warning"),
        ({}, {"appendonly": "no"}, "durability", "warning"),
        ({}, {"appendfsync": "everysec"}, "durability", "ok"),
        ({"valkey_version": "9.0.3"}, {}, "version", "warning"),
    ],
)
def test_a_server_is_judged_by_its_info(
    info: dict[str, str], settings: dict[str, str | None], check: str, verdict: str
) -> None:
    known = {name: value for name, value in (SETTINGS | settings).items() if value is not None}
    verdicts = {f.check: f.verdict for f in check_server(ServerFacts(INFO | info, known, CLOCK), 1_000)}
    assert verdicts[check] == verdict
    assert [other for other, verdict_of_other in verdicts.items() if verdict_of_other != "ok"] == (
        [] if verdict == "ok" else [check]
    )


@pytest.mark.parametrize(
    ("second", "verdict", "text"),
    [
        ("state=online,offset=7,lag=10", "ok", "replica:2 (appendfsync always, 2 replicas)"),
        (
            "state=online,offset=7,lag=11",
            "warning",
            "1 replica): 1 of 2 replicas are not online, or have not answered",
        ),
        ("state=wait_bgsave,offset=0,lag=0", "warning", "replica:1 (appendfsync always, 1 replica): 1 of 2"),
    ],
)
def test_only_replicas_that_answer_support_a_durability(second: str, verdict: str, text: str) -> None:
    first = "ip=10.0.0.2,port=6379,state=online,offset=7,lag=0,type=replica"
    info = INFO | {"connected_slaves": "2", "slave0": first, "slave1": f"ip=10.0.0.3,port=6379,{second}"}
    [finding] = [f for f in check_server(ServerFacts(info, SETTINGS, CLOCK), 1_000) if f.check == "durability"]
    assert finding.verdict == verdict
    assert text in finding.text


def test_an_attestation_replaces_the_settings_that_a_user_may_not_read() -> None:
    facts = ServerFacts(INFO, {}, CLOCK, attested=True)
    [finding] = [f for f in check_server(facts, 1_000) if f.check == "durability"]
    assert (finding.verdict, "fsync" in finding.text) == ("ok", True)


def test_a_server_without_fsync_during_a_rewrite_does_not_support_the_durability_fsync() -> None:
    texts = [
        finding.text
        for setting in ("no", "yes")
        for finding in check_server(ServerFacts(INFO, SETTINGS | {"no-appendfsync-on-rewrite": setting}, CLOCK), 1_000)
        if finding.check == "durability"
    ]
    assert texts[0].startswith("supports the durability fsync (appendfsync always, ")
    assert texts[1].startswith("supports the durability memory (appendfsync always, ")
    assert "`CONFIG SET no-appendfsync-on-rewrite no`" in texts[1]


def test_the_checks_that_the_rights_of_the_user_exclude_are_named() -> None:
    facts = ServerFacts(INFO, SETTINGS, CLOCK, may_list_clients=False, may_scan=False)
    [finding] = [f for f in check_server(facts, 1_000) if f.check == "rights"]
    assert finding.verdict == "warning"
    assert "(SCAN)" in finding.text
    assert "(CLIENT LIST)" in finding.text


def test_unknown_event_processes_of_idle_shards_raise_no_alarm() -> None:
    shard = replace(SHARD, fence=pack_fence(3, 1), locked=False)
    finding = judge([shard], None)["driver"]
    assert (finding.verdict, "was not checked" in finding.text) == ("ok", True)


@pytest.mark.parametrize(
    ("clock", "verdict", "text"),
    [
        (clock_ahead(1_000), "ok", "differ by at most 1,000 ms"),
        (clock_ahead(-1_000), "ok", "differ by at most 1,000 ms"),
        (clock_ahead(1_001), "warning", "is at least 1,001 ms ahead of this host's clock"),
        (clock_ahead(-1_001), "warning", "is at least 1,001 ms behind this host's clock"),
        (clock_ahead(3_000, answered_ms=1_000), "warning", "is at least 2,000 ms ahead of"),
        (clock_ahead(-2_000, answered_ms=1_000), "warning", "is at least 2,000 ms behind"),
        # The server may have read its clock when it received the request, or just before it sent the reply.
        (clock_ahead(0, answered_ms=5_000), "ok", "differ by at most 5,000 ms"),
        (clock_ahead(5_000, answered_ms=5_000), "ok", "differ by at most 5,000 ms"),
    ],
)
def test_a_clock_is_reported_only_if_the_duration_of_the_answer_does_not_explain_the_difference(
    clock: ClockReading, verdict: str, text: str
) -> None:
    [finding] = [f for f in check_server(ServerFacts(INFO, SETTINGS, clock), 1_000) if f.check == "clock"]
    assert finding.verdict == verdict
    assert text in finding.text


@pytest.mark.parametrize(("back_ms", "is_reported"), [(1_000, False), (1_001, True)])
def test_a_clock_that_was_set_back_is_detected_by_the_high_water_mark(back_ms: int, is_reported: bool) -> None:
    findings = judge([SHARD, replace(SHARD, number=1, high_ms=NOW + back_ms, clock=clock_ahead(-back_ms))])
    assert ("clock mark" in findings) == is_reported
    if is_reported:
        assert findings["clock mark"].verdict == "bad"
        assert findings["clock mark"].text.startswith(f"shard 1: the wheel has reached a time that is {back_ms:,} ms")


def test_a_clock_that_was_set_back_to_the_time_of_this_host_is_a_warning() -> None:
    finding = judge([replace(SHARD, high_ms=NOW + 60_000)])["clock mark"]
    assert finding.verdict == "warning"
    assert finding.text.endswith("It agrees with this host's clock now")


def test_each_shard_is_compared_with_its_own_reading_of_its_servers_clock() -> None:
    later = ClockReading(NOW + HOUR, NOW, NOW)
    assert "clock mark" not in judge([SHARD, replace(SHARD, number=1, high_ms=NOW + HOUR, clock=later)])


@pytest.mark.parametrize("seen", ["lock", "inbox"])
def test_a_shard_whose_clock_guard_holds_is_named_and_its_driver_counts_as_alive(seen: str) -> None:
    waiting = replace(SHARD, fence=pack_fence(3, 1), oldest_new=b"1-0", held_ms=5_000, locked=seen == "lock")
    findings = judge([waiting], frozenset({SHARD.number} if seen == "inbox" else ()))
    assert findings["driver"].verdict == "ok"
    assert findings["clock guard"].verdict == "bad"
    assert findings["clock guard"].text.startswith("shard 0: the server's clock stepped 5,000 ms ahead of the time")


@pytest.mark.parametrize(
    ("held_ms", "size"),
    [
        ((3_001, 3_001), "3,001 ms ahead of the time"),
        ((3_001, 2_999), "up to 3,001 ms ahead of the time"),
    ],
)
def test_the_size_of_a_step_is_the_stored_one_however_long_the_guard_holds(held_ms: tuple[int, int], size: str) -> None:
    shards = [replace(SHARD, number=n, high_ms=NOW - HOUR, held_ms=step) for n, step in enumerate(held_ms)]
    assert judge(shards)["clock guard"].text.startswith(f"shard 0, 1: the server's clock stepped {size}")


@pytest.mark.parametrize(
    ("clock", "agrees"),
    [(CLOCK, True), (clock_ahead(5_000), False), (clock_ahead(5_000, answered_ms=5_000), False)],
    ids=["agrees", "differs", "unknown"],
)
def test_a_held_clock_that_agrees_with_this_hosts_clock_is_called_probably_right(
    clock: ClockReading, agrees: bool
) -> None:
    text = judge([replace(SHARD, held_ms=5_000, clock=clock)])["clock guard"].text
    assert ("agrees with this host's clock now" in text) == agrees
    assert ("Correct the clock" in text) != agrees
    assert "kill -USR1" in text


@pytest.mark.parametrize(
    ("oldest_new", "due_ms", "waiting_ms"),
    [
        (NOW, NOW + HOUR, None),
        (NOW - 5_000, NOW - 5_000, None),
        (NOW - 5_001, NOW + HOUR, 5_001),
        (NOW - 1, NOW - 6_000, 6_000),
        (NOW - 6_000, None, 6_000),
        # The id is ahead of the clock, so the age of the entry is unknown.
        (NOW + HOUR, NOW + HOUR, 0),
        (NOW + HOUR, None, 0),
        (NOW + HOUR, NOW - 14_000, 14_000),
    ],
)
def test_an_entry_of_the_inbox_waits_if_it_is_old_or_overdue_or_if_its_age_is_unknown(
    oldest_new: int, due_ms: int | None, waiting_ms: int | None
) -> None:
    shard = replace(SHARD, oldest_new=b"%d-0" % oldest_new, oldest_due_ms=due_ms)
    assert shard.waiting_ms == waiting_ms


@pytest.mark.parametrize(("due_ms", "text"), [(NOW + HOUR, "timers wait,"), (NOW - 14_000, "been due for 14 s,")])
def test_a_shard_with_an_unknown_wait_and_without_progress_has_no_driver(due_ms: int, text: str) -> None:
    waiting = replace(SHARD, locked=False, oldest_new=b"%d-7" % (NOW + HOUR), oldest_due_ms=due_ms)
    finding = judge([waiting])["driver"]
    assert finding.verdict == "bad"
    assert text in finding.text
    assert judge([replace(waiting, driven=True)])["driver"].verdict != "bad"


def test_a_guard_that_held_when_its_event_process_died_is_not_named() -> None:
    waiting = replace(SHARD, fence=pack_fence(3, 1), oldest_new=b"1-0", held_ms=5_000, locked=False)
    findings = judge([waiting])
    assert findings["driver"].verdict == "bad"
    assert "clock guard" not in findings


@pytest.mark.parametrize(
    ("followed", "text"),
    [
        ({0, 1}, "is connected to the shard, but is frozen"),
        ({0}, "no event process drives the shard"),
        ((), "no event"),
    ],
)
def test_an_event_process_that_is_connected_but_makes_no_progress_is_not_called_missing(
    followed: set[int], text: str
) -> None:
    shards = [replace(SHARD, number=n, locked=False, oldest_new=b"1-0") for n in range(2)]
    finding = judge(shards, frozenset(followed))["driver"]
    assert finding.verdict == "bad"
    assert text in finding.text


@pytest.mark.parametrize(
    ("election", "followed", "text"),
    [
        ("zookeeper", {0}, "an event process is connected to the shard, but is frozen or stuck"),
        ("zookeeper", (), "run `tickwheel events --election zk://...`, with the URL of"),
        ("lock", (), "run `tickwheel events`"),
    ],
)
def test_the_driver_and_overdue_messages_have_the_same_explanation(
    election: str, followed: set[int], text: str
) -> None:
    stalled = replace(SHARD, locked=False, oldest_new=b"1-0", election=election)
    followers = Followers(frozenset(followed))
    [finding] = check_overdue({0: OverdueInShard(NOW, 1, "message 'm'")}, [stalled], followers)
    explanation = finding.text.split("; ", 1)[1].split(". An example: ")[0]
    assert text in explanation
    assert judge([stalled], frozenset(followed))["driver"].text.endswith(explanation)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError("x"), OverflowError("x"), TypeError("x"), struct.error("x"), TickwheelError("x")],
)
def test_damage_is_reported_and_ends_its_block_only(error: Exception) -> None:
    reported: list[str] = []
    with report_damage(reported.append):
        raise error
    assert [text.startswith("the data is damaged and was not checked further: ") for text in reported] == [True]


@pytest.mark.parametrize("error", [Unavailable("x"), Forbidden("x"), OSError("x")])
def test_an_error_that_does_not_concern_the_bytes_is_not_damage(error: Exception) -> None:
    reported: list[str] = []
    with pytest.raises(type(error)), report_damage(reported.append):
        raise error
    assert reported == []


@pytest.mark.parametrize(
    ("followed", "verdict", "text"),
    [
        ({0, 1}, "ok", "event processes follow every shard's inbox"),
        ({0}, "warning", "no event process of shard 1 was detected"),
        ({7}, "warning", "no event process was detected"),
    ],
)
def test_drivers_on_other_hosts_are_detected_by_the_inboxes_that_they_read(
    followed: set[int], verdict: str, text: str
) -> None:
    fence = pack_fence(3, 1)
    shards = [replace(SHARD, number=number, fence=fence, locked=False) for number in range(2)]
    finding = judge(shards, frozenset(followed))["driver"]
    assert finding.verdict == verdict
    assert finding.text.startswith(text)


def test_a_queue_in_deletion_is_reported_as_being_deleted_and_not_as_blocked() -> None:
    configs = {"tmp": QueueConfig().marked_for_deletion(), "work": QueueConfig(enqueue_blocked=True)}
    [finding] = check_queues(QueueRows(configs, []))
    assert finding.verdict == "warning"
    assert finding.text == "2 in all; blocked: work (enqueue); being deleted: tmp"


def test_queues_with_a_sink_are_reported() -> None:
    configs = {"mail": QueueConfig(sink="kafka://mails"), "work": QueueConfig()}
    _, finding = check_queues(QueueRows(configs, []))
    assert (finding.check, finding.verdict) == ("sinks", "ok")
    assert finding.text.startswith("mail to kafka://mails;")


def test_queues_whose_sink_no_event_process_serves_are_reported() -> None:
    sinks = {"a": "kafka://\ud800", "b": "kafka://tickwheel.transitions", "mail": "kafka://mails"}
    configs = {name: QueueConfig(sink=sink) for name, sink in sinks.items()}
    _, served, refused = check_queues(QueueRows(configs, []))
    assert (served.verdict, served.text.partition(";")[0]) == ("ok", "mail to kafka://mails")
    assert (refused.check, refused.verdict) == ("sinks", "warning")
    assert "stay Pending, because no event process serves their sink: 2. The first is queue a: sink" in refused.text
    assert refused.text.isprintable()


def test_at_most_20_unreadable_queues_have_findings_of_their_own() -> None:
    findings = list(check_queues(QueueRows({"work": QueueConfig()}, [f"row {n}" for n in range(25)])))
    assert [(one.check, one.verdict) for one in findings] == [*[("queues", "bad")] * 21, ("queues", "ok")]
    assert findings[20].text == "and 5 more unreadable rows"
