"""The verdicts of doctor on the facts that a server and its shards report."""

import struct
from dataclasses import replace

import pytest

from tickwheel.doctor.health import ShardFacts, check_queues, check_shards
from tickwheel.doctor.server_health import ServerFacts, check_server
from tickwheel.doctor.shard_reader import report_damage
from tickwheel.doctor.slots_in_use import SlotsInUse
from tickwheel.errors import Forbidden, TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import QueueRows
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000
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
SHARD = ShardFacts(0, b"", "", NOW, 0, b"", SlotsInUse(), 0, locked=True)


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
        ({"valkey_version": "9.0.3"}, {}, "version", "warning"),
    ],
)
def test_a_server_is_judged_by_its_info(
    info: dict[str, str], settings: dict[str, str | None], check: str, verdict: str
) -> None:
    known = {name: value for name, value in (SETTINGS | settings).items() if value is not None}
    verdicts = {f.check: f.verdict for f in check_server(ServerFacts(INFO | info, known, NOW), NOW, 1.0, 1_000)}
    assert verdicts[check] == verdict
    assert [other for other, verdict_of_other in verdicts.items() if verdict_of_other != "ok"] == (
        [] if verdict == "ok" else [check]
    )


def test_an_attestation_replaces_the_settings_that_a_user_may_not_read() -> None:
    facts = ServerFacts(INFO, {}, NOW, attested=True)
    [finding] = [f for f in check_server(facts, NOW, 1.0, 1_000) if f.check == "durability"]
    assert (finding.verdict, "fsync" in finding.text) == ("ok", True)


def test_a_server_without_fsync_during_a_rewrite_does_not_support_the_durability_fsync() -> None:
    texts = [
        finding.text
        for setting in ("no", "yes")
        for finding in check_server(
            ServerFacts(INFO, SETTINGS | {"no-appendfsync-on-rewrite": setting}, NOW), NOW, 1.0, 1_000
        )
        if finding.check == "durability"
    ]
    assert texts[0].startswith("supports the durability fsync (appendfsync always, ")
    assert texts[1].startswith("supports the durability memory (appendfsync always, ")
    assert "`CONFIG SET no-appendfsync-on-rewrite no`" in texts[1]


def test_the_checks_that_the_rights_of_the_user_exclude_are_named() -> None:
    facts = ServerFacts(INFO, SETTINGS, NOW, followed_shards=None, may_scan=False)
    [finding] = [f for f in check_server(facts, NOW, 1.0, 1_000) if f.check == "rights"]
    assert finding.verdict == "warning"
    assert "(SCAN)" in finding.text
    assert "(CLIENT LIST)" in finding.text


def test_unknown_event_processes_of_idle_shards_raise_no_alarm() -> None:
    shard = replace(SHARD, fence=pack_fence(3, 1), locked=False)
    facts = ServerFacts(now_ms=NOW, followed_shards=None)
    [finding] = [f for f in check_shards(NamespaceContext("tw"), [shard], facts, embedded=False) if f.check == "driver"]
    assert (finding.verdict, "was not checked" in finding.text) == ("ok", True)


@pytest.mark.parametrize(
    ("apart_ms", "verdict"), [(1_000, "ok"), (-1_000, "ok"), (1_001, "warning"), (-1_001, "warning")]
)
def test_a_clock_within_its_guard_is_ok(apart_ms: int, verdict: str) -> None:
    facts = ServerFacts(INFO, SETTINGS, NOW + apart_ms)
    assert {f.check: f.verdict for f in check_server(facts, NOW, 1.0, 1_000)}["clock"] == verdict


@pytest.mark.parametrize(("back_ms", "is_reported"), [(1_000, False), (1_001, True)])
def test_a_clock_that_was_set_back_is_detected_by_the_high_water_mark(back_ms: int, is_reported: bool) -> None:
    shards = [SHARD, replace(SHARD, number=1, high_ms=NOW + back_ms)]
    verdicts = {
        f.check: f.verdict
        for f in check_shards(NamespaceContext("tw"), shards, ServerFacts(now_ms=NOW), embedded=False)
    }
    assert verdicts.get("clock mark") == ("bad" if is_reported else None)


@pytest.mark.parametrize("seen", ["lock", "inbox"])
def test_a_shard_whose_clock_guard_holds_is_named_and_its_driver_counts_as_alive(seen: str) -> None:
    waiting = replace(
        SHARD, fence=pack_fence(3, 1), oldest_new=b"1-0", high_ms=NOW - 5_000, held=True, locked=seen == "lock"
    )
    facts = ServerFacts(now_ms=NOW, followed_shards=frozenset({SHARD.number} if seen == "inbox" else ()))
    findings = {f.check: f for f in check_shards(NamespaceContext("tw"), [waiting], facts, embedded=False)}
    assert findings["driver"].verdict == "ok"
    assert findings["clock guard"].verdict == "bad"
    assert findings["clock guard"].text.startswith("shard 0: the server's clock is 5,000 ms ahead")


def test_a_guard_that_held_when_its_event_process_died_is_not_named() -> None:
    waiting = replace(SHARD, fence=pack_fence(3, 1), oldest_new=b"1-0", held=True, locked=False)
    facts = ServerFacts(now_ms=NOW)
    findings = {f.check: f for f in check_shards(NamespaceContext("tw"), [waiting], facts, embedded=False)}
    assert findings["driver"].verdict == "bad"
    assert "clock guard" not in findings


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
    facts = ServerFacts(now_ms=NOW, followed_shards=frozenset(followed))
    [finding] = [f for f in check_shards(NamespaceContext("tw"), shards, facts, embedded=False) if f.check == "driver"]
    assert finding.verdict == verdict
    assert finding.text.startswith(text)


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
