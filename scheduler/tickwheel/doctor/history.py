"""Checks the history: a replay of the events must result in the states of the records, unless events were trimmed.

The module also checks that the stored size of the outbox is the size of its entries.
"""

from dataclasses import dataclass

from tickwheel.doctor.shard_reader import PAGE, ShardReader
from tickwheel.operations.context import RELAYED
from tickwheel.plan import Plan, pairs_from_flat
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.storage.record import State, name
from tickwheel.storage.transition import OutboxTransition, decode

# The maximum number of transitions of a replay. A replay needs a few hundred bytes of memory for each message.
REPLAY_MAX = 1_000_000


@dataclass(slots=True)
class _ReplayedState:
    """The state of a message after the events replayed so far."""

    incarnation: int
    version: int
    state: State | None
    attempts: int


def check_history(shard: ShardReader) -> Plan[None]:
    """Check the size of the outbox, replay all events, and compare the result with the records.

    There is no replay if the shard has no events, if events were dropped, or if the start of the history was trimmed.
    The result is not compared if the history has more than REPLAY_MAX transitions.
    """
    key = shard.key("events")
    if shard.context.history >= RELAYED:
        yield from _check_size(shard, key)
    if not (yield from shard.execute([("EXISTS", key)]))[0]:
        return
    if (yield from shard.execute([("HEXISTS", shard.key("clock"), "dropped")]))[0]:
        return
    stream_info = dict(pairs_from_flat((yield from shard.execute([("XINFO", "STREAM", key)]))[0]))
    if shard.context.history == 0:
        shard.add_finding("events", "the shard has events, but the namespace keeps no history")
    if stream_info[b"entries-added"] != stream_info[b"length"]:
        return
    states: dict[bytes, _ReplayedState] = {}
    after, replayed = b"-", 0
    while True:
        entries = (yield from shard.execute([("XRANGE", key, after, "+", "COUNT", PAGE)]))[0]
        for entry_id, fields in entries:
            try:
                transitions = decode(fields[1])
            except ValueError as error:
                # Later events cannot be checked without this one.
                shard.add_finding(f"event {entry_id.decode()}", str(error))
                return
            replayed += len(transitions)
            for transition in transitions:
                _apply(shard, states, transition, f"event {entry_id.decode()}")
        if replayed > REPLAY_MAX:
            return
        if len(entries) < PAGE:
            break
        after = b"(" + entries[-1][0]
    yield from _compare(shard, states)
    message_count, length = yield from shard.execute([("HLEN", shard.key("messages")), ("XLEN", key)])
    alive = sum(state.state is not None for state in states.values())
    if length == stream_info[b"length"] and message_count != alive:
        shard.add_finding("events", f"a replay results in {alive} messages, but the shard has {message_count}")


def _check_size(shard: ShardReader, key: str) -> Plan[None]:
    """Check that the stored size of the outbox is the size of its entries. The outbox limit applies to this size.

    There is no finding if the outbox changes during the check.
    """
    commands = [("HGET", shard.key("clock"), "outbox"), ("XINFO", "STREAM", key)]
    if not (yield from shard.execute([("EXISTS", key)]))[0]:
        commands.pop()
    before = yield from shard.execute(commands)
    size, after = 0, b"-"
    while entries := (yield from shard.execute([("XRANGE", key, after, "+", "COUNT", PAGE)]))[0]:
        size += sum(len(fields[1]) for _, fields in entries)
        after = b"(" + entries[-1][0]
    if before == (yield from shard.execute(commands)) and (before[0] or b"0") != b"%d" % size:
        shard.add_finding("clock, outbox", f"it is {before[0]!r}, but the events have {size} bytes")


def _apply(
    shard: ShardReader, states: dict[bytes, _ReplayedState], transition: OutboxTransition, location: str
) -> None:
    value = None if transition.exclusive_value is None else transition.exclusive_value.encode()
    field = transition.queue_number.to_bytes(2, "big") + name(transition.id.encode(), value)
    state = states.get(field)
    if transition.from_state is None:
        follows = state is None or (state.state is None and transition.incarnation > state.incarnation)
        follows = follows and transition.version == 1
    else:
        follows = state is not None and (state.incarnation, state.version + 1, state.state) == (
            transition.incarnation,
            transition.version,
            transition.from_state,
        )
    if not follows:
        shard.add_finding(location, f"it does not follow from the state before, {state}: {transition}")
    states[field] = _ReplayedState(transition.incarnation, transition.version, transition.to_state, transition.attempt)


def _compare(shard: ShardReader, states: dict[bytes, _ReplayedState]) -> Plan[None]:
    for page in iter_chunks(list(states), PAGE):
        for field, stored in (yield from shard.records(page)).items():
            state, queue = states[field], shard.queues.get(int.from_bytes(field[:2], "big"))
            if queue is None:
                shard.add_finding(f"events of {field!r}", "the queue does not exist")
                continue
            try:
                record = None if stored is None else shard.expected_entries(field, stored).record
            except ValueError:
                # `check_messages` reports the unreadable record.
                continue
            actual = None if record is None else (record.incarnation, record.version, record.state, record.attempts)
            replayed = None if state.state is None else (state.incarnation, state.version, state.state, state.attempts)
            if actual != replayed:
                generation = f"incarnation {state.incarnation} version {state.version}"
                shard.add_finding(
                    f"queue {queue[0]}, message {field[2:]!r} {generation}, events",
                    f"they end at {replayed}, but the record has {actual}",
                )
