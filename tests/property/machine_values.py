"""The values that the state machine draws, and helpers to compare results with the model.

There are few values, so that messages often share them.
"""

import math
import random
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from tests.property.model import QueueModel
from tests.property.model_messages import PENDING, EnqueueArguments, Entry, Key
from tests.property.namespace_under_test import START, duration, in_ms, moment
from tickwheel import LeaseLost, Message, NewMessage

_DAY = 86_400_000

clients = st.integers(0, 1)
ids = st.integers(0, 30).map(lambda n: f"m{n}")
values = st.sampled_from(["c1", "c2", "c11"])
filters = st.fixed_dictionaries({}, optional={"region": st.sampled_from(["eu", "us"]), "gpu": st.just("a")})
limits = st.sampled_from([1, 1, 2, 3, 10])
results = st.sampled_from([None, None, "", "done", "é" * 512])
leases = st.sampled_from([None, None, 1_000, 60_000])
delays = st.sampled_from([0, 1, 50, 4_096, 5_000, 300_000, 20_000_000, 20 * _DAY])
dues_in = st.sampled_from([-5_000, -500, 0, 1, 70_000])
deadlines = st.sampled_from([START, START + 60, START - 400 * 365 * _DAY])
deadlines_in = st.sampled_from([-1_000, 0, 0, 5, 60_000])
durations = st.sampled_from([1, 2, 50, 999, 1_000, 4_095, 5_000, 30_000, 30_000, 262_144, 600_000, 3_600_000, 8 * _DAY])
# The same message from one span, from another span, and without a span.
traces = st.sampled_from([(), (("traceparent", "1"),), (("traceparent", "2"), ("tracestate", "a=b"))])
urgencies: st.SearchStrategy[dict[str, int]] = st.one_of(
    st.just({}),
    deadlines.map(lambda ms: {"deadline": ms}),
    deadlines_in.map(lambda ms: {"deadline_in": ms}),
)

# Often finished states, so that a purge leaves most messages.
purged_states = st.sampled_from(
    [
        ["completed", "cancelled", "errored"],
        ["pending"],
        ["invisible"],
        ["errored"],
        ["invisible", "pending", "completed"],
    ]
)


def key_of(message: Message) -> Key:
    return message.id, message.exclusive_value


def as_new(arguments: EnqueueArguments) -> NewMessage:
    # The order of the pairs is not part of the content.
    all_pairs = arguments.metadata + arguments.trace
    pairs = random.sample(all_pairs, len(all_pairs))
    return NewMessage(
        arguments.payload,
        arguments.id,
        None if arguments.due is not None else duration(arguments.delay),
        moment(arguments.due),
        deadline_of(arguments.deadline, arguments.deadline_in),
        dict(pairs) or None,
        duration(arguments.lease),
        arguments.max_attempts,
    )


def deadline_of(deadline: int | None = None, deadline_in: int | None = None, **_: int) -> Any:
    return moment(deadline) if deadline_in is None else duration(deadline_in)


def lost_or(action: Callable[[], Any], message: Message) -> Any:
    try:
        return action()
    except LeaseLost:
        return "LeaseLost", [key_of(message)]


def as_changed(change: Any) -> tuple[Any, ...]:
    return change.state, change.version, in_ms(change.at), change.changed


def buckets(late: list[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for ms in late:
        end = 2 ** math.frexp(ms)[1]
        counts[end] = counts.get(end, 0) + 1
    return counts


def as_explained(explanation: Any) -> tuple[str, str, int | None, int | None]:
    return explanation.state, explanation.code, explanation.ahead, explanation.ahead_in_value


def reason_for(queue: QueueModel, entry: Entry) -> tuple[str, str, int | None, int | None]:
    """Return (state, code, messages ahead, messages ahead with the same value), as `explain` must report them."""
    if entry.state != PENDING:
        return entry.state, entry.state, None, None
    first = queue.take(entry.shard, len(queue.messages), {})
    ahead = None
    if entry in first:
        others = {other.shard for other in queue.messages.values()} - {entry.shard}
        elsewhere = [other for shard in others for other in queue.take(shard, len(queue.messages), {})]
        ahead = first.index(entry) + sum(other.urgency[0] < entry.urgency[0] for other in elsewhere)
    if queue.settings.dequeue_blocked:
        return PENDING, "blocked", ahead, None
    if ahead is not None:
        return PENDING, "behind_others" if ahead else "next", ahead, None
    of_value = [other for other in queue.pending(entry.shard, {}) if other.value == entry.value]
    return PENDING, "behind_value", None, of_value.index(entry)
