"""The limits in the guide equal the limits that the code enforces."""

from pathlib import Path

import pytest

from tickwheel import limits
from tickwheel.service import grpc_options, shared_quota, standard_services
from tickwheel.service.method_table import METHOD_TABLE

pytestmark = pytest.mark.unit

_DAY = 86_400_000
ROWS = {
    "payload": f"{limits.PAYLOAD_BYTES // 1024} KiB; `payload_limit` up to {limits.PAYLOAD_BYTES_MAX // 1024} KiB",
    "metadata": f"{limits.PAIRS_MAX} pairs; key ≤ {limits.PAIR_KEY_BYTES} B, "
    f"value ≤ {limits.PAIR_VALUE_BYTES} B, UTF-8",
    "id": f"{limits.ID_BYTES} B of UTF-8 without NUL",
    "name of a queue or namespace": f"up to {limits.NAME_CHARS} letters, digits, `.`, `_`, `-`;"
    " a new queue must not have the form `deleted.NUMBER.UID`",
    "queues": f"{limits.QUEUES_MAX:,} existing queues a namespace",
    "settings": f"{limits.SETTINGS_MAX:,} a namespace; name up to {limits.SETTING_NAME_CHARS} letters, digits, `.`,"
    f" `_`, `-`, `:`; value up to {limits.SETTING_BYTES // 1024} KiB",
    "shards": f"{limits.SHARDS_MAX:,}",
    "`limit` of a dequeue": f"1 to {limits.DEQUEUE_MESSAGES:,}",
    "one script call": f"{limits.CALL_MESSAGES:,} messages, {limits.CALL_BYTES // 2**20} MiB, "
    f"{limits.CALL_ENTRIES:,} index entries, and {limits.OUT_OF_BAND_BYTES // 2**20} MiB of payloads above"
    " 1 KiB; the client splits larger calls",
    "all calls of one round": f"{limits.ROUND_BYTES // 2**20} MiB over all shards; the client splits larger rounds",
    "delay": f"{limits.DELAY_MS_MAX // (365 * _DAY)} years",
    "priority": f"0 to {limits.PRIORITY_MAX}",
    "lease": f"{limits.LEASE_MS_MIN // 1000} s to {limits.LEASE_MS_MAX // 3_600_000} h",
    "wait of a dequeue": f"{limits.WAIT_MS_MAX // 3_600_000} h",
    "minutes of a forecast": f"{limits.FORECAST_MINUTES_MAX:,}",
    "max_attempts": f"1 to {limits.MAX_ATTEMPTS_MAX:,}",
    "error text kept": f"{limits.ERROR_BYTES // 1024} KiB, longer text is truncated",
    "result kept": f"{limits.RESULT_BYTES // 1024} KiB",
    "worker name": f"{limits.WORKER_BYTES} B",
    "outbox of a shard (history `relay`)": "`outbox_limit=`: whole KiB, from"
    f" {limits.OUTBOX_BYTES_MIN:,} to {limits.OUTBOX_BYTES_MAX:,} B"
    f" ({(limits.OUTBOX_BYTES_MAX + 1024) // 2**40} TiB less 1 KiB);"
    " `outbox_full=`: `block` or `drop`; fixed when the namespace is created",
    "clock guard": f"`clock_guard=`, {limits.CLOCK_GUARD_MS_MIN} ms to {limits.CLOCK_GUARD_MS_MAX // 3_600_000} h; "
    "fixed when the namespace is created",
}
DEFAULTS = {
    "lease": f"{limits.LEASE_MS // 1000} s",
    "max_attempts": f"{limits.MAX_ATTEMPTS}",
    "retention of completed and cancelled": f"{limits.RETENTION_MS // 60_000} min, without payload and metadata",
    "retention of errored": f"{limits.ERRORED_RETENTION_MS // _DAY} days, with payload and metadata",
    "clock guard": f"{limits.CLOCK_GUARD_MS // 1000} s",
    "outbox of a shard (history `relay`)": f"{limits.OUTBOX_BYTES // 2**20} MiB, `block`",
    "history (events)": f"`capped`: the events of the last {limits.HISTORY_ENTRIES:,} calls",
    "a call is retried for": f"{limits.RETRY_MS // 1000} s",
    "a call of a producer is retried for": f"{limits.PRODUCER_RETRY_MS // 1000} s",
}


# The limits of a process of the service, which have a separate table.
SERVICE_ROWS = {
    "a request": f"{limits.REQUEST_BYTES // 2**20} MiB;"
    f" {limits.UNCOUNTED_REQUEST_BYTES // 1024} KiB if it has neither a list nor a message;"
    f" {standard_services._REQUEST_BYTES // 1024} KiB for health checks and reflection",
    "an answer": f"ends after {limits.ANSWER_BYTES // 2**20} MiB of leased messages, and a page of `ListMessages` after"
    f" {limits.PAGE_BYTES // 2**20} MiB of messages; each has at least one"
    " message. So a dequeue can return fewer messages than `limit` although there are more",
    "answers that clients have not read (above 4 KiB)": (
        f"– ; a caller with more than {limits.ANSWER_BYTES // 2**20} MiB may have at most as many bytes as it leaves"
        f" free for others. The process builds {limits.ANSWERS_AT_ONCE // 2**20} MiB of answers at a time, of a caller"
        f" at most as many as it leaves free for others, and {limits.CALLER_ANSWERS * 3} more of each caller:"
        f" {limits.CALLER_ANSWERS} of up to"
        f" {limits.ANSWER_LINES[0] / 2**20:g} MiB, {limits.CALLER_ANSWERS} of up to"
        f" {limits.ANSWER_LINES[1] // 2**20} MiB, and {limits.CALLER_ANSWERS} larger ones. The others wait. Answers"
        f" that wait for a shard for longer than {limits.TURN_S:g} s no longer count, up to"
        f" {limits.CALLER_HANGING_BYTES // 2**20} MiB of each caller and of each of the first two sizes"
    ),
    "a batch": f"{limits.BATCH_ITEMS:,} messages, leases or ids; for `Fail` {limits.FAIL_ITEMS};"
    f" for `DequeueBatch` {limits.DEQUEUE_REQUESTS} requests,"
    f" for {limits.DEQUEUE_MESSAGES:,} messages in total; for `AwaitMessages` {limits.AWAITED_QUEUES} queues",
    "tokens since the start of a service with `--processes`": (
        f"the limits of {shared_quota.ROWS:,} tokens hold over all processes; each process limits further tokens"
        " separately, and logs a warning"
    ),
    "walks": "one walk of each caller goes on at a time; the others wait. A *walk* is a `GetDepth` with a filter, or a"
    " dequeue with a filter, that needs several script calls on a shard, because a script call reads at most"
    f" {limits.CALL_ENTRIES:,} index entries. The first script call does not wait. A walk begins its second one when"
    f" the token is within its rate, or after {limits.WALK_WAIT_S:g} s",
    "reads of many shards": f"{limits.CALLER_ROUND_REQUESTS} requests"
    f" to shards at a time for each caller, and {limits.CALLER_DEQUEUE_GROUPS} queues of its `DequeueBatch` calls,"
    f" fewer in a namespace with {2 * limits.SHARDS_OF_A_GROUP} or more shards; the"
    " others wait in their order. A call that sends at most four requests at a time, as in a namespace with few shards,"
    f" does not count. A read that lasts longer than {limits.TURN_S:g} s waits for a shard, and no longer"
    " counts",
    "requests with many items": f"{limits.CALLER_ITEMS} messages, leases or ids at a time for each"
    f" caller; a request of a `DequeueBatch` counts as five, and a page of `ListMessages` as"
    f" {METHOD_TABLE['ListMessages'].size}. The other requests with more than {limits.UNCOUNTED_ITEMS}"
    " wait in their order",
    f"`AwaitMessages` with more than {limits.UNCOUNTED_ITEMS} queues": "two at a time for each caller search for"
    f" messages, with a pause of {limits.PAUSE_AFTER_CHECK_S * 1_000:g} ms after each, or"
    f" {limits.PAUSES_AFTER_CHECK} such pauses while the process is busy; the others wait in their order",
    "the request of a call": f"must arrive within {limits.REQUEST_ARRIVAL_S:g} s after the headers of the call, and of"
    f" a health check within {limits.HEALTH_ARRIVAL_S:g} s",
    "other calls in flight": "– ; a call is in flight until its client has read the answer. Other calls may also use"
    " the places that no waiting call uses. A caller may have at most as many as it leaves free for others, and"
    f" {limits.CALLER_CALLS} in any case",
    "large requests (above 64 KiB) in flight": "– ; a caller may have at most as many bytes as it leaves free for"
    f" others, and {limits.REQUEST_BYTES // 2**20} MiB in any case. The service processes four of them at a time for"
    " each caller, and the others wait",
    "health checks in flight": "– ; an address may have at most as many as it leaves free for others, and"
    f" {limits.CALLER_CALLS} of each kind in any case",
    "calls that wait (dequeues, `AwaitMessages` and `GetMessage` with a wait, streams)": (
        "`--max-waiting`; for one token `waiting`"
    ),
    "wake channels of a caller: one for each queue for which its calls wait, and each shard": (
        f"{limits.CALLER_CHANNELS:,} in each process, which take 90 MB of memory. The calls that wait for further"
        " queues find their messages later: one call of each such queue checks it about once a second. A subscription"
        " ends ten seconds after its last call"
    ),
    "streams of a token without the limit `waiting`": "`waiting` of the token: then as many streams as waiting calls."
    f" Each stream can take {limits.REQUEST_BYTES // 2**20} MiB of memory",
    "messages that a client has requested from a `DequeueStream` and not received": (
        f"{limits.STREAM_CREDIT:,}; the stream delivers 100 at a time"
    ),
    "calls that have arrived and that the process has not accepted yet": (
        f"{limits.UNACCEPTED_CALLS:,}; above this limit, gRPC cancels calls of all clients with CANCELLED, and the"
        " Python client retries its calls. The process accepts the calls of all connections in one order, 2,000 to"
        " 5,000 a second"
    ),
    "shards of a namespace that a client creates": (
        "`--max-shards`; the operator may create a namespace with more: [below](#namespaces-with-many-shards)"
    ),
    "a client that vanishes without closing its connection": (
        f"disconnected after {(grpc_options.PING_MS + grpc_options.PONG_MS) // 1000} s"
    ),
}
SERVICE_DEFAULTS = {
    "calls that wait (dequeues, `AwaitMessages` and `GetMessage` with a wait, streams)": f"{limits.WAITING_CALLS:,}",
    "streams of a token without the limit `waiting`": f"{limits.STREAMS} in each process",
    "other calls in flight": f"{limits.OTHER_CALLS:,}",
    "large requests (above 64 KiB) in flight": f"{limits.REQUESTS_BYTES // 2**20} MiB",
    f"answers that clients have not read (above {limits.UNCOUNTED_ANSWER_BYTES // 1024} KiB)": (
        f"{limits.ANSWERS_BYTES // 2**20} MiB"
    ),
    "health checks in flight": f"{limits.HEALTH_CHECKS:,}, and {limits.HEALTH_WATCHES:,} that watch (`Watch`)",
    "calls of reflection in flight": f"{limits.REFLECTIONS}",
    "queues that auto-create makes for a token": f"{limits.AUTO_CREATED_QUEUES}",
    "shards of a namespace that a client creates": f"{limits.CREATED_SHARDS}",
    "connections": f"{limits.CONNECTIONS:,}",
}


GUIDE = (Path(__file__).parents[2] / "docs/guide.md").read_text()


def table(title: str = "## Limits and defaults", end: str = "\n## ") -> dict[str, tuple[str, str]]:
    rows = [line for line in GUIDE.split(title)[1].split(end)[0].splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {label: (default, limit) for label, default, limit in cells}


@pytest.mark.parametrize("row", ROWS)
def test_a_limit_in_the_guide_equals_the_code(row: str) -> None:
    assert table()[row][1] == ROWS[row]


@pytest.mark.parametrize("row", DEFAULTS)
def test_a_default_in_the_guide_equals_the_code(row: str) -> None:
    assert table()[row][0] == DEFAULTS[row]


def test_the_limits_of_the_service_in_the_guide_equal_the_code() -> None:
    rows = table("### Limits of the service")
    assert {row: rows[row][1] for row in SERVICE_ROWS} == SERVICE_ROWS
    assert {row: rows[row][0] for row in SERVICE_DEFAULTS} == SERVICE_DEFAULTS
    counted = GUIDE.partition("#### What counts as a message")[2]
    assert f"for each {limits.SHARDS_OF_A_MESSAGE} shards" in counted
    assert f"for each {limits.KEYS_OF_A_MESSAGE} pairs of a queue" in counted
    assert f"for each {limits.MINUTES_OF_A_MESSAGE} minutes of a shard" in counted
    assert f"for each {limits.QUEUES_OF_A_MESSAGE} queues of the answer" in counted
    assert f"each {limits.ROWS_OF_A_MESSAGE} queues of" in counted
    assert f"for each {limits.READ_OF_A_MESSAGE} messages that it has" in counted
    assert f"up to {limits.RATE_MAX:,}" in rows["messages a second"][1]
