"""Health check of an election by lease: who leads which shard, who stands by, and which shards nobody can drive."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tickwheel.doctor.finding import Finding
from tickwheel.doctor.lease_members import LeaseMembers
from tickwheel.doctor.shard_facts import ShardFacts
from tickwheel.election.lease_member import CALLS_PER_LEASE, KIND
from tickwheel.election.lease_row import LAST_RESORT, Row

# Maximum number of processes that the finding names.
_PROCESSES: Final = 10
_START: Final = "run `tickwheel events --election lease`"
_WORKERS: Final = "a worker or a service with `--drive auto` drives, too, or logs why it does not"


def check_election(shards: list[ShardFacts], members: LeaseMembers | None) -> Iterator[Finding]:
    """Check the election by lease of these shards. Yield nothing if they have another kind of election.

    ``members`` is None if this user may not read the election.
    """
    numbers = [shard.number for shard in shards if shard.election == KIND]
    if members is None:
        if numbers:
            yield Finding("election", "ok", "by lease; the processes that take part were not read")
        return
    if not numbers and not members.active:
        return
    if not members.active and not members.newer:
        yield _nobody(members)
        return
    yield Finding("election", "ok", _summary(members))
    if members.unresponsive:
        yield _unresponsive(members.unresponsive, members.watched_s)
    if not members.newer:
        yield from _undriven(numbers, members.active)
    if members.unreadable:
        yield Finding("election", "warning", f"rows that no version of Tickwheel writes: {members.unreadable}")


def _summary(members: LeaseMembers) -> str:
    rows = sorted(members.active.values(), key=lambda row: (row.rank, row.name))
    named = "; ".join(_describe(row) for row in rows[:_PROCESSES])
    more = len(rows) - _PROCESSES
    text = f"by lease: {named}" + (f"; and {more} more processes" if more > 0 else "")
    return text + (f"; and {members.newer} of a later version of Tickwheel" if members.newer else "")


def _describe(row: Row) -> str:
    name = f"{row.name} (last resort)" if row.rank == LAST_RESORT else row.name
    return f"{name} leads {shard_ranges(row.drives)}" if row.drives else f"{name} stands by"


def _nobody(members: LeaseMembers) -> Finding:
    text = "no event process takes part in the election by lease"
    if members.unresponsive:
        text += f" ({_names(members.unresponsive)} did not write to it for {members.watched_s:.0f} s)"
    return Finding("election", "warning", f"{text}: {_START}; {_WORKERS}")


def _unresponsive(unresponsive: Mapping[str, Row], watched_s: float) -> Finding:
    text = (
        f"{_names(unresponsive)} did not write to the election for {watched_s:.0f} s: the process was killed, is frozen"
        " or cut off. Then others take over its shards"
    )
    # Rows of earlier versions do not contain the session time-out.
    if any(not row.lease_ms for row in unresponsive.values()):
        slow_s = watched_s * CALLS_PER_LEASE
        text += f". Or it has an earlier version and a --session-timeout of more than {slow_s:.0f} s"
    return Finding("election", "warning", text)


def _undriven(numbers: list[int], active: Mapping[str, Row]) -> Iterator[Finding]:
    """Report the shards that no active member drives, and those that members avoid."""
    missing = set(numbers) - {shard for row in active.values() for shard in row.drives}
    for row in active.values():
        if row.avoids:
            text = f"{row.name} cannot drive {shard_ranges(row.avoids)}: its loop hangs, or, in a cluster, the process"
            text += " cannot reach the server. Check its log, and if the loop hangs, restart the process"
            yield Finding("election", "warning", text)
    stuck = {shard for shard in missing if all(shard in row.avoids for row in active.values())}
    if stuck:
        yield Finding("election", "bad", f"no process can drive {shard_ranges(stuck)}: {_START} on another host")
    if waiting := missing - stuck:
        text = f"no process drives {shard_ranges(waiting)} at present: a takeover has not ended, or has failed"
        yield Finding("election", "warning", f"{text}. Repeat the command, and check the logs of the event processes")


def _names(rows: Mapping[str, Row]) -> str:
    names = sorted(row.name for row in rows.values())
    more = len(names) - _PROCESSES
    return ", ".join(names[:_PROCESSES]) + (f" and {more} more" if more > 0 else "")


def shard_ranges(shards: Iterable[int]) -> str:
    """Return the numbers as text: ``shard 0 to 3, 7``."""
    ranges: list[list[int]] = []
    for shard in sorted(shards):
        if ranges and ranges[-1][-1] == shard - 1:
            ranges[-1] = [ranges[-1][0], shard]
        else:
            ranges.append([shard])
    return "shard " + ", ".join(" to ".join(map(str, part)) for part in ranges)
