"""The first round of a dequeue: the script, or cheaper plain commands if the last dequeue found nothing."""

from dataclasses import replace
from typing import Any

import pytest

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import ready_shards
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.plan import Request, Round

pytestmark = pytest.mark.unit

WHERE = {"region": "eu", "gpu": "a100"}


def core(**config: Any) -> NamespaceContext:
    """Return a context that has the configuration of a queue, and no knowledge of its messages."""
    context = NamespaceContext("tw")
    context.configs["q"] = QueueConfig(number=1, version=1, uid=b"same", **config)
    return context


def make_dequeue(
    known: NamespaceContext, where: dict[str, str] | None = None, request_id: str | None = None
) -> Dequeue:
    return Dequeue(known, "q", DequeueOptions.parse(where=where, request_id=request_id))


def first(call: Dequeue) -> list[str]:
    """Return the commands or scripts of the first round."""
    step = next(call.plan(lambda *_: pytest.fail("no reply is expected")))
    assert isinstance(step, Round)
    return [each.call.script.name if each.call else str(each.command[0]) for each in step.requests if each]  # type: ignore[index]


def test_the_script_is_called_if_the_last_call_found_a_message() -> None:
    assert first(make_dequeue(core())) == first(make_dequeue(core(), WHERE)) == ["dequeue"]


def test_a_queue_that_was_empty_is_checked_by_plain_commands_with_any_filter() -> None:
    known = core()
    known.heads.known_empty.add(("q", b""))
    assert first(make_dequeue(known)) == first(make_dequeue(known, WHERE)) == ["EXISTS", "HGET"]


def test_only_the_pairs_that_matched_nothing_are_checked_one_by_one() -> None:
    known = core()
    call = make_dequeue(known, WHERE)
    call._ready_shards.record_empty(matching=True)
    assert first(make_dequeue(known, WHERE)) == ["ZRANGE", "ZRANGE", "HGET"]
    assert first(make_dequeue(known)) == first(make_dequeue(known, {"region": "eu"})) == ["dequeue"]


def test_a_call_that_must_be_recorded_calls_the_script() -> None:
    known = core()
    known.heads.known_empty.add(("q", b""))
    assert first(make_dequeue(known, request_id="w:1")) == ["dequeue"]
    assert first(make_dequeue(core(dequeue_blocked=True))) == ["dequeue"]
    # The session's last call had no reply. A copy of the call may still arrive, and must then be rejected.
    with known.sessions.borrow() as slot:
        slot.begin_call("tw", 0)
    assert first(make_dequeue(known)) == ["dequeue"]
    slot.call_answered(0, stored=False)
    assert first(make_dequeue(known)) == ["EXISTS", "HGET"]


def test_with_too_many_queues_and_pairs_everything_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_shards, "_MAX_KNOWN_EMPTY", 3)
    known = core()
    for n in range(4):
        call = make_dequeue(known, {"n": str(n)})
        call._ready_shards.record_empty(matching=True)
    assert known.heads.known_empty == {call._ready_shards._unmatched}


def context_with_ready_shards(*ready: int) -> NamespaceContext:
    """Return a context that has learned recently that these of four shards have messages, and the others have none."""
    known = core()
    known.shards = 4
    for shard in range(4):
        known.heads.record("q", shard, 1_000 + shard if shard in ready else None)
    return known


def test_shards_that_were_empty_recently_are_skipped_while_another_has_messages() -> None:
    assert first(make_dequeue(context_with_ready_shards(2))) == ["dequeue"]
    assert first(make_dequeue(context_with_ready_shards(0, 1, 2, 3))) == ["dequeue"]
    assert first(make_dequeue(context_with_ready_shards())) == ["ZRANGE"] * 4 + ["HGET"]
    # A dequeue with a request id makes one call on each shard.
    assert first(make_dequeue(context_with_ready_shards(2), request_id="w:1"))[:1] == ["GET"]


@pytest.mark.parametrize("script", ["enqueue", "fail", "release", "reschedule", "redrive"])
def test_a_shard_to_which_this_client_added_something_more_urgent_is_checked(script: str) -> None:
    known = context_with_ready_shards(2)
    requests = [Request(3, known.call(script, 3, "q", []))]
    known.heads.forget_changed("q", known.configs["q"].exclusive_key is not None, requests)
    assert first(make_dequeue(known)) == ["ZRANGE"] * 4 + ["HGET"]


@pytest.mark.parametrize("script", ["complete", "cancel"])
@pytest.mark.parametrize(("key", "checks_all_shards"), [(None, False), ("customer", True)])
def test_the_end_of_a_message_makes_another_deliverable_in_exclusive_queues_only(
    script: str, key: str | None, checks_all_shards: bool
) -> None:
    known = context_with_ready_shards(2)
    known.configs["q"] = replace(known.configs["q"], exclusive_key=key)
    known.heads.forget_changed(
        "q", known.configs["q"].exclusive_key is not None, [Request(3, known.call(script, 3, "q", []))]
    )
    assert (first(make_dequeue(known)) == ["dequeue"]) is not checks_all_shards
