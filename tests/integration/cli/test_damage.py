"""Commands report damaged keys of a namespace as a finding or in one line, never with a traceback."""

import json
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.integration.cli.command_runner import Run, document
from tickwheel import Tickwheel, TickwheelError
from tickwheel.cli.app import app
from tickwheel.operations.removal import queue_numbers
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


class Keys:
    """The server of a namespace, and the names of its keys."""

    def __init__(self, server: Any, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    def __call__(self, name: str, shard: int = 0) -> str:
        return f"{self.namespace}:{{{shard}}}:{name}"

    def retype(self, name: str) -> None:
        self.server.delete(self(name))
        self.server.set(self(name), "x")

    def score(self, score: float) -> None:
        """Change the score of a message in `ready`."""
        ready = self("q:p:ready")
        self.server.zadd(ready, {self.server.zrange(ready, 0, 0)[0]: score})


@pytest.fixture
def keys(run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[Keys]:
    run("enqueue", "p", "x")
    with tickwheel_server.client() as client:
        yield Keys(client, cli_client._context.namespace)


def field(name: str, field: str | bytes, value: str | bytes) -> Callable[[Keys], object]:
    return lambda keys: keys.server.hset(keys(name), field, value)


# The damage -> the check that fails, and a part of its text.
DAMAGE: dict[str, tuple[Callable[[Keys], object], str, str]] = {
    "an infinite score": (lambda keys: keys.score(float("inf")), "records", "its score is inf, not "),
    "shards": (
        field("namespace", "shards", "L"),
        "namespace",
        "'shards' is b'L', and allowed is a whole number from",
    ),
    "shards that are bytes": (field("namespace", "shards", b"\xff"), "namespace", "'shards' is b'\\xff'"),
    "no shards": (lambda keys: keys.server.hdel(keys("namespace"), "shards"), "namespace", "'shards' is missing"),
    "shards beyond number": (field("namespace", "shards", "9" * 5000), "namespace", "'shards' is b'999"),
    "format": (field("namespace", "format", b"\xff"), "namespace", "'format' is b'\\xff', and this version reads 2"),
    "history": (field("namespace", "history", b"\xff"), "namespace", "allowed is one of capped, relay, off"),
    "auto_create": (field("namespace", "auto_create", "yes"), "namespace", "a whole number from 0 to 1"),
    "clock_guard_ms": (field("namespace", "clock_guard_ms", "-1"), "namespace", "a whole number from 250 to"),
    "a namespace of another type": (lambda keys: keys.retype("namespace"), "namespace", "WRONGTYPE"),
    "a configuration": (field("queues", "p", "{"), "queues", "damaged"),
    "a configuration of another kind": (field("queues", "p", bytes(10) + b"[]"), "queues", "damaged"),
    "a name of a queue": (field("queues", b"\xff", "{"), "queues", "damaged"),
    "queues of another type": (lambda keys: keys.retype("queues"), "queues", "WRONGTYPE"),
    "a fence": (field("clock", "fence", "zz"), "shard 0", "'fence' of the key 'clock' is b'zz', not 16 bytes"),
    "a mark": (field("clock", "high", "abc"), "shard 0", "'high' of the key 'clock' is b'abc', not a whole number"),
    "an election": (field("clock", "election", b"\xff"), "shard 0", "damaged"),
    "a slot": (lambda keys: keys.server.zadd(keys("slots"), {"hello": 1}), "shard 0", "b'hello' of slots is not LEVEL"),
    "a slot beyond the levels": (lambda keys: keys.server.zadd(keys("slots"), {f"{10**12}:1": 1}), "shard 0", "LEVEL"),
    "a clock of another type": (lambda keys: keys.retype("clock"), "shard 0", "WRONGTYPE"),
    "an inbox of another type": (lambda keys: keys.retype("inbox"), "shard 0", "WRONGTYPE"),
    "a lateness": (field("q:p:lateness", "late:3", "x"), "records", "lateness b'late:3': it is b'x', not a whole"),
    "a bucket of lateness": (field("q:p:lateness", "late:x", "1"), "records", "lateness b'late:x'"),
    "a fence in the audit": (field("clock", "fence", "zz"), "records", "clock, fence: it is b'zz', not 16 bytes"),
    "a mark in the audit": (field("clock", "high", "abc"), "records", "clock, high: it is b'abc', not a whole number"),
    "a clock in the audit": (lambda keys: keys.retype("clock"), "records", ":clock: its type is string, not hash"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_doctor_reports_damage_as_a_finding_and_continues(run: Run, keys: Keys, damage: str) -> None:
    do_damage, check, text = DAMAGE[damage]
    do_damage(keys)
    result = run("doctor", "--json", code=1)
    assert "checks are bad" in result.stderr
    findings = document(result)
    assert any(
        text in finding["text"] for finding in findings if (finding["check"], finding["verdict"]) == (check, "bad")
    ), findings
    # The checks before and after the damaged part ran.
    rest = {"server", "memory", "queues"} | (set() if check == "namespace" else {"namespace", "records"})
    assert rest <= {finding["check"] for finding in findings}
    assert "BAD" in run("doctor", code=1).stdout


def test_a_damaged_shard_hides_no_other_shard(
    run: Run, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch, cli_client: Tickwheel
) -> None:
    namespace = f"{cli_client._context.namespace}-3"
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=3), tickwheel_server.client() as client:
        client.set(f"{namespace}:{{1}}:clock", "x")
        findings = document(run("doctor", "--json", "--quick", code=1))
    tickwheel_server.clear(namespace)
    assert [finding["check"] for finding in findings if finding["verdict"] == "bad"] == ["shard 1"]
    assert {"driver", "inbox", "outbox", "queues"} <= {finding["check"] for finding in findings}


def test_doctor_changes_nothing_in_a_damaged_namespace(run: Run, keys: Keys) -> None:
    keys.server.hdel(keys("namespace"), "shards")
    before = keys.server.hgetall(keys("namespace"))
    run("doctor", code=1)
    assert keys.server.hgetall(keys("namespace")) == before


@pytest.mark.parametrize("target", ["celery", "tickwheel"])
def test_a_damaged_setting_of_another_name_does_not_keep_a_route_from_being_set(
    run: Run, keys: Keys, target: str
) -> None:
    keys.server.hset(keys("settings"), "other", b"\xff")
    run("route", "set", "mail.send", "--to", target)
    assert keys.server.hget(keys("settings"), "route:mail.send")


def test_a_damaged_route_is_not_an_error_of_the_command_line(run: Run, keys: Keys) -> None:
    keys.server.hset(keys("settings"), "route:mail.send", "{")
    assert "replace it with `tickwheel route set`, or remove it" in run("route", "list", code=1).stderr
    run("route", "set", "mail.send", "--to", "celery")
    run("route", "list")
    keys.server.hset(keys("settings"), "route:mail.send", "{")
    run("route", "unset", "mail.send")
    run("route", "list")


def test_doctor_reads_nothing_of_a_namespace_of_another_format(run: Run, keys: Keys) -> None:
    keys.server.hset(keys("namespace"), "format", "3")
    # A later version may store the settings of a queue in another form.
    keys.server.hset(keys("queues"), "p", "another form")
    bad = [finding for finding in document(run("doctor", "--json", code=1)) if finding["verdict"] == "bad"]
    assert [finding["check"] for finding in bad] == ["namespace"]
    assert "'format' is b'3', and this version reads 2" in bad[0]["text"]


@pytest.mark.parametrize(
    "command",
    [
        "counts",
        "messages p",
        "queue list",
        "queue purge p --yes",
        "queue delete p --purge --yes",
        "namespace delete --yes",
        "shards",
        "shards reset-epoch --yes",
        "explain p m",
        "setting list",
        "enqueue p x",
        "dequeue p",
    ],
)
def test_commands_refuse_a_namespace_of_another_format(run: Run, keys: Keys, command: str) -> None:
    def contents() -> dict[bytes, object]:
        return {key: keys.server.dump(key) for key in keys.server.scan_iter(f"{keys.namespace}:*", count=10_000)}

    keys.server.hset(keys("namespace"), "format", "3")
    before = contents()
    assert "'format' is b'3', and this version reads 2" in run(*command.split(), code=1).stderr
    assert contents() == before


@pytest.mark.parametrize("name", ["shards", "history", "format", "auto_create", "clock_guard_ms"])
def test_a_client_refuses_a_damaged_namespace_and_names_the_field(
    tickwheel_server: PrivateServer, keys: Keys, name: str
) -> None:
    keys.server.hset(keys("namespace"), name, b"\xff")
    text = rf"namespace '{keys.namespace}' cannot be opened: its field '{name}' is b'\\xff', and "
    with pytest.raises(TickwheelError, match=text):
        Tickwheel(tickwheel_server.url, namespace=keys.namespace)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("lateness", "late:3", "x"),
        ("lateness", "late:x", "1"),
        ("lateness", "late:-1", "1"),
        ("counts", "2", "x"),
        ("counts", "99", "1"),
    ],
)
def test_counts_refuses_damaged_counters_in_one_line(run: Run, keys: Keys, name: str, field: str, value: str) -> None:
    keys.server.hset(keys(f"q:p:{name}"), field, value)
    result = run("counts", code=1)
    assert "counters of queue 'p' are damaged on shard 0" in result.stderr


def test_a_queue_with_damaged_counters_can_be_deleted(run: Run, keys: Keys) -> None:
    keys.server.hset(keys("q:p:counts"), "2", "x")
    assert "counters of queue 'p' are damaged" in run("queue", "delete", "p", "--yes", code=1).stderr
    assert "with an unknown number of messages?" in run("queue", "delete", "p", "--purge", stdin="n\n", code=1).stderr
    assert run("queue", "delete", "p", "--purge", "--yes").stdout == "queue p is deleted; removed: 1 message\n"


def test_doctor_exits_with_code_3_if_the_server_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKWHEEL_URL", "redis://127.0.0.1:1")
    result = run("doctor", "--timeout", "200ms", "--json", code=3)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "value", ["{", b"\xff", b"\0" * 10 + b"[]", b"\0" * 10 + b"{}", b"\0" * 10 + b'{"indexed": 3}']
)
def test_a_queue_with_a_damaged_configuration_is_reported_in_one_line(run: Run, keys: Keys, value: str | bytes) -> None:
    keys.server.hset(keys("queues"), "p", value)
    run("enqueue", "other", "x")
    for command in (("enqueue", "p", "x"), ("dequeue", "p"), ("counts", "p")):
        refused = run(*command, code=1).stderr
        assert "the configuration of queue 'p' is damaged: b'" in refused
        assert refused.count("\n") == 1


@pytest.mark.parametrize("command", [("counts",), ("queue", "list")])
def test_the_lists_of_queues_skip_a_damaged_configuration_and_name_it(
    run: Run, keys: Keys, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    # The throttle of another test's command must not suppress the warning.
    monkeypatch.setattr(queue_numbers, "_log_throttle", LogThrottle())
    run("enqueue", "other", "x")
    keys.server.hset(keys("queues"), "p", "{")
    result = run(*command)
    assert "the configuration of queue 'p' is damaged: b'" in result.stderr
    # The other line is the warning that nobody drives.
    assert (result.stderr.count("Warning: "), result.stderr.count("\n")) == (1, 2)
    assert "other" in result.stdout


RECORDS = {
    "cut off": b"\x02",
    "a state that is none": b"\x09" + bytes(60),
    "pairs that are none": b"\x02\x10" + bytes(12) + b"\xff" * 60,
}


# A record that is cut off within its first bytes is already refused by a script.
@pytest.mark.parametrize(
    ("command", "record"),
    [(c, r) for c in ("messages", "get", "explain") for r in RECORDS if (c, r) != ("explain", "cut off")],
)
def test_a_damaged_record_is_reported_in_one_line(run: Run, keys: Keys, command: str, record: str) -> None:
    (field,) = keys.server.hkeys(keys("messages"))
    keys.server.hset(keys("messages"), field, RECORDS[record])
    result = run(command, "p", *([field[2:].decode()] if command != "messages" else []), code=1)
    assert "of queue 'p' is damaged: " in result.stderr


def test_a_record_cut_off_before_the_name_of_its_body_is_reported_in_one_line(run: Run, keys: Keys) -> None:
    (field,) = keys.server.hkeys(keys("messages"))
    keys.server.hset(keys("messages"), field, b"\x02\x22")
    assert "of queue 'p' is damaged: " in run("messages", "p", code=1).stderr


HOSTILE = "x\nFORGED\r\x1b[2J\x9b2J\x85\u2028\u202e\x7f"
READS = (
    *("counts", "queue list", "queue show jobs", "queue show sinky", "messages jobs", "messages sinky", "shards"),
    *("setting list", "setting get a", "route list", "doctor", "dequeue jobs"),
)


@pytest.fixture
def hostile_texts(keys: Keys, cli_client: Tickwheel) -> None:
    """Stored texts that control a terminal or forge another line, wherever a program can store a text."""
    jobs = cli_client.create_queue("jobs", exclusive_key=HOSTILE)
    jobs.enqueue(HOSTILE.encode(), id=f"errored {HOSTILE}", metadata={HOSTILE: HOSTILE})
    jobs.dequeue(worker=HOSTILE)[0].fail(HOSTILE, final=True)
    jobs.enqueue(HOSTILE.encode(), id=HOSTILE, metadata={HOSTILE: HOSTILE})
    cli_client.set_setting("a", HOSTILE)
    rows, stored = keys("queues"), keys.server.hget(keys("queues"), "jobs")
    keys.server.hset(rows, HOSTILE, stored)
    keys.server.hset(rows, "sinky", stored.replace(b'"sink": null', b'"sink": ' + json.dumps(HOSTILE).encode()))
    keys.server.hset(keys("settings"), HOSTILE, HOSTILE)
    keys.server.hset(keys("settings"), f"route:{HOSTILE}", '{"to": "tickwheel"}')
    keys.server.set(keys(HOSTILE), "x")


@pytest.mark.usefixtures("hostile_texts")
@pytest.mark.parametrize("command", READS)
def test_stored_texts_cannot_control_the_terminal_or_forge_a_line(command: str) -> None:
    for options in ([], ["--json"]):
        result = copy_context().run(CliRunner().invoke, app, [*command.split(), *options])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        lines = (result.stdout + result.stderr).removesuffix("\n").split("\n")
        assert all(line.isprintable() and not line.startswith("FORGED") for line in lines), lines
        if options:
            assert [json.loads(line) for line in lines if line]
