"""Filters deliver and count the most urgent messages that carry every requested pair."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, NewMessage, Queue, Tickwheel, limits
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

Neighbours = Callable[[str, int], list[str]]
SECOND = timedelta(seconds=1)


@pytest.fixture(params=["plain", "exclusive"])
def queue(request: pytest.FixtureRequest, tw: Tickwheel) -> Queue:
    """Each message has a value of its own; otherwise the exclusive key would affect delivery."""
    return tw.create_queue("q", exclusive_key="value" if request.param == "exclusive" else None)


def new(id: str, pairs: dict[str, str], **options: Any) -> NewMessage:
    return NewMessage(id=id, metadata=pairs | {"value": id}, **options)


def drained(queue: Queue, where: dict[str, str]) -> list[str]:
    ids = []
    while messages := queue.dequeue(where=where, consistency="exact"):
        ids += [message.id for message in messages]
    return ids


def test_a_filter_on_one_shard_delivers_the_most_urgent_match_first(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    ids = neighbours("q", 20)
    queue.enqueue_many(
        new(id, {"gpu": "a100" if n % 3 else "h100"}, deadline=clock.now - n * SECOND) for n, id in enumerate(ids)
    )
    assert drained(queue, {"gpu": "h100"}) == [ids[n] for n in (18, 15, 12, 9, 6, 3, 0)]
    assert queue.counts()["pending"] == 13


def test_a_filter_over_shards_delivers_all_matches(queue: Queue) -> None:
    queue.enqueue_many(new(f"m{n}", {"gpu": "a100" if n % 3 else "h100"}) for n in range(60))
    assert sorted(drained(queue, {"gpu": "h100"})) == sorted(f"m{n}" for n in range(0, 60, 3))


def test_every_pair_must_match(queue: Queue) -> None:
    queue.enqueue_many(
        [
            new("both", {"gpu": "a100", "region": "eu"}),
            new("one", {"gpu": "a100"}),
            new("other", {"region": "eu"}),
            new("neither", {}),
            new("swapped", {"gpu": "eu", "region": "a100"}),
        ]
    )
    assert drained(queue, {"gpu": "a100", "region": "eu"}) == ["both"]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ({"ab": "c"}, {"a": "bc"}),
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "b"}, {"a": ""}),
        ({"a": ""}, {"a": "b"}),
        ({"a": "b"}, {"a": "bc"}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": "b\xff"}, {"a": "b"}),
        ({"a": "B"}, {"a": "b"}),
    ],
)
def test_pairs_are_compared_byte_by_byte(queue: Queue, stored: dict[str, str], wanted: dict[str, str]) -> None:
    queue.enqueue_many([new("m", stored)])
    assert queue.depth(wanted) == 0
    assert drained(queue, wanted) == []
    assert queue.depth(stored) == 1
    assert drained(queue, stored) == ["m"]


def test_sixteen_pairs_of_the_maximum_length_can_be_filtered(queue: Queue) -> None:
    pairs = {f"{n:064}": chr(0x10FFFF) * 64 for n in range(15)}
    queue.enqueue_many([new("m", pairs)])
    assert queue.depth(pairs | {"value": "m"}) == 1
    assert drained(queue, pairs | {"value": "m"}) == ["m"]
    with pytest.raises(InvalidArgument, match="more than 16 pairs"):
        queue.dequeue(where={str(n): "v" for n in range(17)})


@pytest.mark.parametrize("where", [{"gpu": "a100"}, {"gpu": "a100", "region": "eu"}])
def test_a_filter_finds_pending_messages_only(queue: Queue, clock: VirtualClock, where: dict[str, str]) -> None:
    exclusive = queue.config().exclusive_key is not None

    def value(id: str) -> str | None:
        return id if exclusive else None

    pairs = {"gpu": "a100", "region": "eu"}
    for id in ("running", "completed", "errored"):
        queue.enqueue_many([new(id, pairs, max_attempts=1 if id == "errored" else None)])
        [message] = queue.dequeue(where=where)
        if id == "completed":
            message.complete()
        elif id == "errored":
            message.fail()
    queue.enqueue_many([new("cancelled", pairs), new("invisible", pairs, delay=SECOND)])
    queue.cancel("cancelled", value("cancelled"))
    assert (queue.depth(where), queue.dequeue(where=where)) == (0, [])
    clock.advance(SECOND)
    assert queue.depth(where) == 1
    queue.redrive("errored", value("errored"))
    assert queue.depth(where) == 2
    queue.reschedule("invisible", value("invisible"), delay=SECOND)
    queue.reschedule("errored", value("errored"), deadline=clock.now)
    assert (queue.depth(where), drained(queue, where)) == (1, ["errored"])


def test_every_filter_agrees_with_a_scan_of_all_messages_of_a_shard(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    chosen = random.Random(7)
    keys = {"a": 2, "b": 3, "c": 10, "d": 50}
    pairs = {
        id: {key: str(chosen.randrange(size)) for key, size in keys.items() if chosen.random() < 0.9}
        for id in neighbours("q", 400)
    }
    deadlines = dict(zip(pairs, chosen.sample(range(10_000), len(pairs)), strict=True))
    queue.enqueue_many(
        new(id, carried, deadline=clock.now + timedelta(milliseconds=deadlines[id])) for id, carried in pairs.items()
    )
    left = set(pairs)
    for _ in range(60):
        wanted = {key: str(chosen.randrange(keys[key])) for key in chosen.sample(list(keys), chosen.randint(1, 3))}
        matching = sorted((id for id in left if wanted.items() <= pairs[id].items()), key=deadlines.__getitem__)
        assert queue.depth(wanted) == len(matching)
        ids = [message.id for message in queue.dequeue(where=wanted, consistency="exact")]
        assert ids == matching[:1]
        left.difference_update(ids)


def test_a_filter_walk_split_over_calls_finds_the_only_match(
    queue: Queue, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CALL_ENTRIES", 100)
    # Half of the messages carry one pair, half the other, and one both: more entries than one call may read.
    queue.enqueue_many(
        new(f"m{n}", {"a": "1"} if n % 2 else {"b": "1"}, deadline=clock.now - timedelta(days=1)) for n in range(1_200)
    )
    queue.enqueue_many([new("needle", {"a": "1", "b": "1"})])
    assert queue.depth({"a": "1", "b": "1"}) == 1
    assert [message.id for message in queue.dequeue(limit=10, where={"a": "1", "b": "1"})] == ["needle"]
    assert queue.dequeue(limit=10, where={"a": "1", "b": "1"}) == []


def test_only_indexed_keys_can_be_filtered(tw: Tickwheel) -> None:
    queue = tw.create_queue("some", indexed=["gpu", "region"])
    queue.enqueue(id="m", metadata={"gpu": "a100", "note": "n", "region": "eu"})
    for call in (lambda: queue.dequeue(where={"note": "n"}), lambda: queue.depth({"note": "n"})):
        with pytest.raises(InvalidArgument, match="does not index 'note'"):
            call()
    [message] = queue.dequeue(where={"region": "eu", "gpu": "a100"})
    assert message.metadata == {"gpu": "a100", "note": "n", "region": "eu"}


def test_a_queue_may_index_nothing(tw: Tickwheel, server: Any) -> None:
    queue = tw.create_queue("none", indexed=[])
    queue.enqueue(id="m", metadata={"gpu": "a100"})
    assert not list(server.scan_iter(match=f"{tw._context.namespace}:*pairs"))
    assert queue.dequeue()[0].metadata == {"gpu": "a100"}
    with pytest.raises(InvalidArgument, match="does not index 'gpu'"):
        queue.depth({"gpu": "a100"})


def test_a_filter_delivers_up_to_its_limit_over_all_shards(queue: Queue) -> None:
    queue.enqueue_many(new(f"m{n}", {"gpu": "a100" if n % 2 else "h100"}) for n in range(200))
    assert len(queue.dequeue(limit=30, where={"gpu": "a100"})) == 30
    assert len(queue.dequeue(limit=100, where={"gpu": "a100"})) == 70
    assert queue.counts() | {"pending": 100, "running": 100} == queue.counts()
