"""Single faults in the scripts. The machine of all operations must detect each of them, or its runs prove nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tickwheel.storage import scripts


@dataclass(frozen=True)
class Mutant:
    """Replaces every ``old`` in a script by ``new``."""

    name: str
    script: str
    old: str
    new: str
    namespace: str = "plain"
    """The kind of namespace in which the fault has an effect."""
    clock_steps: bool = False
    """Whether the fault has an effect only if the clock steps."""
    is_rare: bool = False
    """Whether the machine needs hundreds of runs, so ten seconds or more, until the fault has an effect."""

    def source(self, text: str) -> str:
        assert self.old in text, f"{self.script} has no {self.old!r}: the mutant {self.name!r} must edit other text"
        return text.replace(self.old, self.new)


@contextmanager
def load_mutant(mutant: Mutant, folder: Path) -> Iterator[None]:
    """Load all scripts from a copy that contains the fault."""
    copied = folder / "lua"
    shutil.copytree(str(scripts.folder()), copied)
    path = copied / f"{mutant.script}.lua"
    path.write_text(mutant.source(path.read_text()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "folder", lambda: copied)
        scripts.load.cache_clear()
        try:
            yield
        finally:
            scripts.load.cache_clear()


MUTANTS = [
    # Order and indexes
    Mutant("a new message is due a millisecond late", "enqueue", "due <= now and", "due < now and"),
    Mutant("a cancelled message stays in ready", "cancel", "remove_pending(field, deadline, rank,", "read_pairs("),
    Mutant(
        "a message's own deadline is ignored",
        "_record",
        "return due, incarnation + IMPLICIT_DEADLINE_RANK,",
        "return due, incarnation,",
    ),
    Mutant("dequeue takes one too many", "dequeue", "0, limit - 1)", "0, limit)"),
    Mutant("a relative deadline counts from 1970", "enqueue", "deadline = deadline + now", "deadline = deadline"),
    Mutant(
        "a pair of a leased message stays",
        "_ready_indexes",
        "pairs_removed[#pairs_removed + 1] = pair",
        "pairs_removed[1] = pair",
    ),
    # Exclusive values
    Mutant(
        "the less urgent is the head",
        "_ready_indexes",
        "head_deadline < deadline + BIAS",
        "head_deadline > deadline + BIAS",
        "exclusive",
    ),
    Mutant(
        "the later of two equals is the head", "_ready_indexes", "head_rank < rank", "head_rank > rank", "exclusive"
    ),
    Mutant(
        *("a lease does not hold its value", "_ready_indexes"),
        *("call('HSET', locks, value, 'R' .. id)", "call('HDEL', locks, value)", "exclusive"),
    ),
    Mutant("complete keeps the value", "complete", "free_value(field)", "", "exclusive"),
    Mutant("fail keeps the value", "fail", "free_value(field)", "", "exclusive", is_rare=True),
    Mutant("release keeps the value", "release", "free_value(field)", "", "exclusive"),
    Mutant("an expired lease keeps the value", "expire", "free_value(field)", "", "exclusive"),
    Mutant("a worker's late call keeps the value", "_held_leases", "    free_value(field)", "", "exclusive"),
    Mutant("cancel frees the value of a worker at work", "cancel", "and free_at_once == 0", "and false", "exclusive"),
    Mutant(
        "a group that was parked stays parked",
        "_ready_indexes",
        "call('ZREM', parked, unpack(groups))",
        "",
        "exclusive",
    ),
    Mutant(
        "a group is parked and never comes back",
        "_ready_indexes",
        "call('ZADD', pairs, 0, head_entry(head,",
        "select(1, head_entry(head,",
        "exclusive",
    ),
    # Attempts, versions, leases
    Mutant("attempts are not counted", "dequeue", "attempts + 1", "attempts"),
    Mutant("one attempt too many by fail", "fail", "attempts >= max_attempts", "attempts > max_attempts"),
    Mutant("one attempt too many by expiry", "expire", "attempts >= max_attempts", "attempts > max_attempts"),
    Mutant(
        "a final failure is tried again", "fail", "and max_attempts > 0 and own_max_attempts", "and own_max_attempts"
    ),
    Mutant("an errored message is not counted", "_transition", "if to == ERRORED then", "if to > ERRORED then"),
    Mutant(
        "an errored message is counted again when it is redriven or removed",
        *("_transition", "if to == ERRORED then", "if to == ERRORED or from == ERRORED then"),
    ),
    Mutant("release counts the attempt", "release", "attempts - 1, now", "attempts, now"),
    Mutant(
        "an event contains the attempt that release took back",
        "release",
        "PENDING, attempts - 1)",
        "PENDING, attempts)",
    ),
    Mutant("release leaves its lease's token", "release", "flags - OWNED", "flags"),
    Mutant("redrive keeps the attempts", "redrive", "version + 1, 0, now", "version + 1, 3, now", is_rare=True),
    Mutant(
        "reschedule does not raise the version",
        "reschedule",
        "flags, version + 1, attempts",
        "flags, version, attempts",
    ),
    Mutant("a message gets the result of the message before", "complete", "result, results_at = read", "result = read"),
    Mutant(
        "an errored message keeps the error from before the end of its last lease",
        "expire",
        "#text, text",
        "#failure, failure",
    ),
    Mutant("any token completes", "complete", "token ~= tokens[n]", "not token"),
    Mutant("any token owns", "_held_leases", "and sub(record, AFTER_HEAD, 30) == token", ""),
    Mutant("extend shortens a lease", "extend", "math.max(until_ms, now + lease)", "now + lease"),
    Mutant(
        "an extended lease expires all the same",
        "expire",
        "elseif until_ms > trusted then",
        "elseif false then",
        is_rare=True,
    ),
    Mutant("the message's own lease is ignored", "dequeue", "lease = read('>I4', record, at)", "lease = 0"),
    # Time
    Mutant("a moved timer is forgotten", "_fired_timers", "    add_timer(kind,", "    select(1, kind,", is_rare=True),
    Mutant("a lease has no timer", "dequeue", "add_event(add_timer(1,", "add_event(pack_mark(1,"),
    Mutant("a completed message is never removed", "complete", "add_event(add_timer(2,", "add_event(pack_mark(2,"),
    Mutant(
        "enqueue ignores the clock guard",
        "enqueue",
        "and not (is_absolute and high_water_mark and due > high_water_mark + guard)",
        "",
    ),
    Mutant(
        "the clock guard is a hundred times as wide",
        "enqueue",
        "due > high_water_mark + guard",
        "due > high_water_mark + 100 * guard",
        clock_steps=True,
    ),
    Mutant(
        "reschedule ignores the clock guard",
        "reschedule",
        "and high_water_mark and ready_at > high_water_mark + guard",
        "and false",
        clock_steps=True,
    ),
    Mutant("the forecast forgets the cancelled", "cancel", "add_to_forecast(until_ms, -1)", ""),
    # Purge and deletion
    Mutant(
        "a purged message leaves no event",
        "purge",
        "add_event(pack_mark(2, now, incarnation, version + 1,",
        "select(1, pack_mark(2, now, incarnation, version + 1,",
    ),
    Mutant(
        "a purge removes messages of other states",
        "purge",
        "band(states, 2 ^ (holds_value and RUNNING or state)) ~= 0",
        "true",
    ),
    Mutant("a purged message stays in ready", "purge", "remove_pending(field, deadline,", "select(1, field, deadline,"),
    Mutant("a purged message gets no new version", "purge", "version = version + 1\n", "version = version\n"),
    Mutant("a purge forgets the forecast", "purge", "add_to_forecast(until_ms, -1)", ""),
    Mutant(
        "a purge takes the value of a worker at work", "purge", "holds_value and RUNNING or state", "state", "exclusive"
    ),
    Mutant(
        "a purge leaves the payload",
        "purge",
        "removed_bodies[#removed_bodies + 1] = body_field(field, record, fixed)",
        "",
    ),
    Mutant(
        "a deleted queue keeps its histograms",
        "drop_queue",
        "counts, lateness, forecast",
        "counts, forecast",
        is_rare=True,
    ),
    Mutant("a deleted queue keeps its configuration", "delete_queue", "redis.call('HDEL', queues, ARGV[1])\n", ""),
    Mutant(
        "a queue gets the number of an existing queue",
        "create_queue",
        "number = struct.unpack('>I2', placeholder, 9)",
        "number = 2",
        "two-queues",
    ),
    # Sessions and repeated calls
    Mutant(
        "a repeated request is executed again",
        "_session",
        "elseif session_record and last_sequence == sequence then",
        "elseif false then",
    ),
    Mutant(
        "an old request is executed again",
        "_session",
        "last_sequence > sequence or digest_sequence > sequence",
        "false",
    ),
    Mutant(
        "a repeated request returns a message of another worker",
        "dequeue",
        "(byte(record) ~= RUNNING or sub(record, AFTER_HEAD, 30) ~= token)",
        "byte(record) ~= RUNNING",
        is_rare=True,
    ),
    Mutant("other content is the same", "enqueue", "sub(record, at, at + 7) ~= sub(record_tail, 1, 8)", "false"),
    Mutant("an existing message is reported as created", "enqueue", "char(ALREADY, state)", "char(DONE, state)"),
    # The remaining scripts
    Mutant("a blocked queue delivers", "_queue_context", "= band(options, BLOCKED) ~= 0", "= false"),
    Mutant("another configuration is accepted", "_queue_context", "~= sub(ARGV[1], 1, 8)", "== ''"),
    Mutant("a retired message leaves no event", "retire", "add_event(pack_mark(", "select(1, pack_mark("),
    Mutant("an event contains the attempts of the event before", "_transition", "or attempts ~= tail_attempts", ""),
    Mutant("an event contains the lateness of the event before", "_transition", "or late_ms ~= tail_late_ms", ""),
    Mutant("an event contains the change of the event before", "_transition", "if change ~= tail_change or", "if"),
    Mutant("an event forgets the deadline", "enqueue", "EXPLICIT + PAIRS) == 0", "PAIRS) == 0"),
    Mutant(
        "the payload of a cancelled message stays",
        "cancel",
        "removed_bodies[#removed_bodies + 1] = body_field(field, record, fixed)",
        "",
    ),
    Mutant(
        "counts forget where a message came from",
        "_transition",
        "(count_changes[from] or 0) - amount",
        "(count_changes[from] or 0)",
    ),
]
