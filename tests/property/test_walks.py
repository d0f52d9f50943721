"""Filtered dequeue and depth return the same messages as a full search.

A call may read only few index entries. So a walk, the search of an index for a filter, takes several calls. Each call
continues at the cursor of the previous call.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.property.mutants import Mutant, load_mutant
from tickwheel import NewMessage, Queue, Tickwheel, limits
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.property

MESSAGES = 1_000
KEYS = [f"key{n}" for n in range(12)]
START = datetime(2030, 1, 1, tzinfo=UTC)
# The scripts report the number of entries that each read of an index returns, by ECHO. MONITOR receives the reports.
MONITORED = Mutant(
    "entries are counted",
    "_constants",
    "local BIAS",
    """call = function(command, ...)
    local answer = redis.call(command, ...)
    if command == 'ZRANGEBYLEX' then redis.call('ECHO', 'read ' .. #answer) end
    return answer
end
local BIAS""",
)


def messages(random: random.Random) -> list[NewMessage]:
    """Draw messages with 1 to 15 pairs of few values: many share a pair, and most share bits of their signatures."""
    messages = []
    for n in range(MESSAGES):
        keys = random.sample(KEYS, random.randint(1, len(KEYS)))
        metadata = {key: random.choice("ab" if key < "key5" else "abcdefgh") for key in keys}
        metadata["value"] = f"v{random.randrange(60) if n % 2 else random.randrange(3)}"
        deadline = START + timedelta(milliseconds=random.randrange(200))
        messages.append(NewMessage(id=f"m{n}", deadline=deadline, metadata=metadata))
    return messages


def matching(messages: list[NewMessage], where: dict[str, str]) -> list[NewMessage]:
    """Return the messages that have every pair, most urgent first. Equally urgent messages keep their order."""
    matches = [new for new in messages if where.items() <= dict(new.metadata or {}).items()]
    return sorted(matches, key=lambda new: new.deadline)  # type: ignore[arg-type,return-value]


def one_of_each_value(messages: list[NewMessage], leased_values: set[str]) -> list[NewMessage]:
    """Return the most urgent message of each value that is not leased."""
    best: dict[str, NewMessage] = {}
    for new in messages:
        value = dict(new.metadata or {})["value"]
        if value not in leased_values:
            best.setdefault(value, new)
    return list(best.values())


def some_filter(random: random.Random, messages: list[NewMessage]) -> dict[str, str]:
    """Draw pairs of one message, so that it matches; sometimes add a pair that the message does not have."""
    metadata = dict(random.choice(messages).metadata or {})
    where = {key: metadata[key] for key in random.sample(sorted(metadata), min(len(metadata), random.randint(1, 4)))}
    return where if random.randrange(4) else where | {"key11": "h"}


@dataclass(frozen=True, slots=True)
class Filled:
    """A queue with messages. ``left`` has the messages that are not leased."""

    queue: Queue
    messages: list[NewMessage]
    left: list[NewMessage]
    leased_values: set[str]


def filled(tickwheel: Tickwheel, random: random.Random, exclusive: bool) -> Filled:
    """Fill a queue. If it is exclusive, lease a third of the values, starting with the values of most messages."""
    queue = tickwheel.create_queue("walked", exclusive_key="value" if exclusive else None, max_attempts=1_000)
    new_messages = messages(random)
    queue.enqueue_many(new_messages)
    leased = queue.dequeue(limit=20) if exclusive else []
    leased += [message for n in range(3) if exclusive for message in queue.dequeue(where={"value": f"v{n}"})]
    ids = {message.id for message in leased}
    left = [new for new in new_messages if new.id not in ids]
    return Filled(queue, new_messages, left, {message.metadata["value"] for message in leased})


def compare_in_exact_order(tickwheel: Tickwheel, exclusive: bool, seed: int) -> None:
    """Compare calls with and without filters, with small and large limits, with a plain sort over all shards."""
    chosen = random.Random(seed)
    walked = filled(tickwheel, chosen, exclusive)
    queue = walked.queue
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "CALL_ENTRIES", seed)
        for _ in range(40):
            where, limit = chosen.choice([{}, some_filter(chosen, walked.messages)]), chosen.choice([1, 2, 7, 50])
            expected = matching(walked.left, where)
            if exclusive:
                expected = one_of_each_value(expected, walked.leased_values)
            got = queue.dequeue(limit=limit, where=where or None, consistency="exact")
            assert [message.deadline for message in got] == [new.deadline for new in expected[:limit]]
            # Of the messages with the last deadline, any may be leased. Across shards, equal deadlines are unordered.
            before = [new.id for new in expected[:limit] if new.deadline != expected[: limit + 1][-1].deadline]
            assert set(before) <= {message.id for message in got} <= {new.id for new in expected}
            for message in got:
                message.fail(retry_in=timedelta(0))


def compare(tickwheel: Tickwheel, exclusive: bool, seed: int) -> None:
    """Compare forty filters, each by depth and dequeue, with a search through all messages."""
    chosen = random.Random(seed)
    walked = filled(tickwheel, chosen, exclusive)
    queue = walked.queue
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "CALL_ENTRIES", seed)
        for _ in range(40):
            where, limit = some_filter(chosen, walked.messages), chosen.choice([1, 2, 7, 50])
            expected = matching(walked.left, where)
            assert queue.depth(where) == len(expected)
            if exclusive:
                expected = one_of_each_value(expected, walked.leased_values)
            got = queue.dequeue(limit=limit, where=where)
            assert [message.id for message in got] == [new.id for new in expected[:limit]]
            for message in got:
                message.fail(retry_in=timedelta(0))


@pytest.mark.parametrize("entries", [3, 17, 100, 2_000])
@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
def test_a_walk_in_small_steps_finds_the_same_messages_as_a_full_search(
    tickwheel: Tickwheel, exclusive: bool, entries: int
) -> None:
    compare(tickwheel, exclusive, entries)


@pytest.mark.parametrize("entries", [3, 100, 2_000])
@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
def test_across_shards_the_exact_order_equals_a_plain_sort(
    tickwheel_server: PrivateServer, exclusive: bool, entries: int
) -> None:
    with sandbox(tickwheel_server, shards=4) as (tickwheel, _):
        compare_in_exact_order(tickwheel, exclusive, entries)
        findings = tickwheel._run(audit(tickwheel._context))
    assert not findings


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant(
            "a match by signature is a match",
            "_filter_match",
            "if not message_pairs[filter_pairs[n]] then",
            "if false then",
        ),
        Mutant("a value is passed over", "depth", "while budget > 1 do", "while budget > 0 do"),
        Mutant("the uncertain is certain", "_filter_walk", "if candidates[n][1] < deadline or", "if true or"),
        Mutant("the rest of a value is forgotten", "_filter_walk", "group_cursor or ''", "''"),
    ],
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_the_comparison_detects_a_wrong_walk(tickwheel_server: PrivateServer, tmp_path: Path, mutant: Mutant) -> None:
    def compare_all() -> None:
        for entries, exclusive in itertools.product((3, 17, 50), (False, True)):
            with sandbox(tickwheel_server) as (tickwheel, _):
                compare(tickwheel, exclusive, entries)

    with load_mutant(mutant, tmp_path), pytest.raises(AssertionError):
        compare_all()


@pytest.mark.parametrize("entries", [10, 30])
@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
def test_no_call_reads_more_entries_than_its_limit(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    exclusive: bool, entries: int,
) -> None:  # fmt: skip
    chosen = random.Random(entries)
    with load_mutant(MONITORED, tmp_path):
        walked = filled(tickwheel, chosen, exclusive)
        queue = walked.queue
        monkeypatch.setattr(limits, "CALL_ENTRIES", entries)
        with tickwheel_server.client() as client, client.monitor() as monitor:
            for _ in range(20):
                where = some_filter(chosen, walked.messages)
                queue.depth(where)
                for message in queue.dequeue(limit=chosen.choice([1, entries]), where=where):
                    message.complete()
            read = [entries_read(commands) for commands in commands_of_calls(monitor, tickwheel_server)]
    # A call reads index entries for its walk, and for the pairs of leased messages. An exclusive queue has two index
    # entries for a pair.
    assert 0 < max(read) <= (3 * entries if exclusive else entries + 1)


@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
def test_a_record_and_its_pairs_count_as_entries(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch, exclusive: bool
) -> None:
    queue = tickwheel.create_queue("walked", exclusive_key="value" if exclusive else None)
    pairs = {f"key{n}": "a" for n in range(9)}
    queue.enqueue_many(NewMessage(metadata=pairs | {"value": f"v{n}"}) for n in range(50))
    monkeypatch.setattr(limits, "CALL_ENTRIES", 60)
    with tickwheel_server.client() as client, client.monitor() as monitor:
        assert queue.depth({"key0": "a", "key1": "a"}) == 50
        assert len(queue.dequeue(limit=50, where={"key0": "a", "key1": "a"})) == 50
        calls = list(commands_of_calls(monitor, tickwheel_server))
    records = max(sum(command.startswith("HGET") and ":messages " in command for command in call) for call in calls)
    # A message has ten pairs. The last record that a call reads may exceed the budget.
    assert 0 < records <= 60 // 11 + 1


def test_an_exclusive_value_counts_as_several_entries(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tickwheel.create_queue("walked", exclusive_key="value")
    queue.enqueue_many(NewMessage(metadata={"value": f"v{n}", "key": "a"}) for n in range(50))
    monkeypatch.setattr(limits, "CALL_ENTRIES", 60)
    with tickwheel_server.client() as client, client.monitor() as monitor:
        assert queue.depth({"key": "a"}) == 50
        calls = list(commands_of_calls(monitor, tickwheel_server))
    assert max(sum(command.startswith("ZLEXCOUNT") for command in call) for call in calls) == 60 // 6


def commands_of_calls(monitor: Any, server: PrivateServer) -> Iterator[list[str]]:
    """Return the commands of each script call."""
    with server.client() as client:
        client.echo("the end")
    commands: list[str] = []
    while (command := monitor.next_command())["command"] != "ECHO the end":
        if command["client_type"] != "lua":
            yield commands
            commands = []
        else:
            commands.append(command["command"])
    yield commands


def entries_read(commands: list[str]) -> int:
    """Return the number of entries that a script call reads."""
    return sum(int(command.rpartition(" ")[2]) for command in commands if command.startswith("ECHO read "))
