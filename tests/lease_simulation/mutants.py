"""Planted bugs. In some of many runs with random faults, the checks must detect each of them.

A bug in the scripts or in the wheel is in `server.py` and `process.py`. The others replace a part of the product, or of
the simulated threads.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from tests.lease_simulation.events import SimulatedThread
from tickwheel.election import claims, lease_member
from tickwheel.election.assignment import Assignment, assign
from tickwheel.election.claims import LeaseClaims
from tickwheel.election.lease_attendance import Attendance, Attended
from tickwheel.election.lease_member import LeaseMember
from tickwheel.election.lease_shards import LeaseLeadership, LeaseShards
from tickwheel.election.loop_watch import LoopWatch
from tickwheel.election.unclaimed_shards import UnclaimedShards
from tickwheel.storage.fence import StoredClaim, pack_fence

Patches = Callable[[ExitStack], None]
# Bugs in the scripts and in the wheel.
IN_THE_SIMULATION = (*("no fence", "no comparison", "no new claim", "trims without filing", "trims before publishing"),)


def _equal_fences(stack: ExitStack) -> None:
    """The fence is the epoch alone."""
    stack.enter_context(patch.object(claims, "pack_fence", lambda epoch, _: pack_fence(epoch, 1)))


def _claims_again(stack: ExitStack) -> None:
    """A driver that is fenced claims the shard again, whatever the shard stores."""
    next_fence = LeaseClaims.next_fence

    def next_fence_always(own: LeaseClaims, stored: StoredClaim) -> bytes | None:
        if own.is_confirmed:
            own.is_confirmed, own._seen = False, stored
        return next_fence(own, stored)

    stack.enter_context(patch.object(LeaseClaims, "next_fence", next_fence_always))


def _impatient(stack: ExitStack) -> None:
    """A member claims the shards that are assigned to it without waiting for their drivers."""
    stack.enter_context(patch.object(LeaseMember, "may_claim", lambda member, shard, *_: member.is_assigned(shard)))


def _no_hold(stack: ExitStack) -> None:
    """After the metadata was set back, members without a row count as gone at once (rule 4)."""
    on_attended = LeaseMember.on_attended

    def without_hold(member: LeaseMember, call: Attendance, reply: Attended, sent: float, now: float) -> None:
        on_attended(member, call, reply, sent, now)
        member._held_until = 0.0
        member._followed = member._stored.of(member._shards)

    stack.enter_context(patch.object(LeaseMember, "on_attended", without_hold))


def _no_damping(stack: ExitStack) -> None:
    """A member that was removed joins again at once each time (rule 5)."""
    stack.enter_context(patch.object(LeaseMember, "_on_removed", lambda *_: None))


def _undriven_shards_are_kept(stack: ExitStack) -> None:
    """Nobody claims the shard of a living member that does not drive it (rule 6)."""
    stack.enter_context(patch.object(lease_member, "_BEATS_WITHOUT_DRIVING", inf))


def _lost_claims_are_given_up(stack: ExitStack) -> None:
    """A driver does not claim its shard again after a failover has lost its claim."""
    next_fence = LeaseClaims.next_fence

    def next_fence_unless_lost(own: LeaseClaims, stored: StoredClaim) -> bytes | None:
        is_lost = own.is_confirmed and stored.epoch < own.epoch and stored.holder != own._member
        return None if is_lost else next_fence(own, stored)

    stack.enter_context(patch.object(LeaseClaims, "next_fence", next_fence_unless_lost))


def _fences_are_not_compared(stack: ExitStack) -> None:
    """A driver without work does not learn that it has been deposed (rule 7)."""
    lose = LeaseShards.lose

    def lose_unless_deposed(shards: LeaseShards, leadership: LeaseLeadership) -> None:
        if sys._getframe(1).f_code.co_name != "_read_claims":
            lose(shards, leadership)

    stack.enter_context(patch.object(LeaseShards, "lose", lose_unless_deposed))


def _wakes_get_lost(stack: ExitStack) -> None:
    """A wake that comes during a call does not end the next wait (rule 8)."""
    wake = SimulatedThread.wake

    def wake_if_it_sleeps(thread: SimulatedThread, after: float = 0.0) -> None:
        wake(thread, after)
        thread._is_woken = False

    stack.enter_context(patch.object(SimulatedThread, "wake", wake_if_it_sleeps))


def _rows_are_not_needed(stack: ExitStack) -> None:
    """A member that was removed proposes itself, and claims shards, before it has joined again (rule 9)."""

    def with_own_row(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(member: LeaseMember, *args: Any) -> Any:
            rows = member._rows
            member._rows = {**rows, member.id: rows.get(member.id) or member._own_row()}
            try:
                return method(member, *args)
            finally:
                member._rows = rows

        return call

    for name in ("_proposal", "may_claim"):
        stack.enter_context(patch.object(LeaseMember, name, with_own_row(getattr(LeaseMember, name))))


def _loops_are_not_watched(stack: ExitStack) -> None:
    """A process keeps the shard of a loop that hangs."""
    stack.enter_context(patch.object(LoopWatch, "hanging", lambda *_: []))


def _ranks_are_ignored(stack: ExitStack) -> None:
    """A member of the last resort gets a share."""

    def assign_to_all(
        ranks: Sequence[Mapping[str, Set[int]]], shards: int, previous: Sequence[str | None]
    ) -> Assignment:
        return assign({member: avoids for rank in ranks for member, avoids in rank.items()}, shards, previous)

    stack.enter_context(patch.object(lease_member, "assign_by_rank", assign_to_all))


def _leases_of_others_are_ignored(stack: ExitStack) -> None:
    """A member judges all others by its own lease."""
    stack.enter_context(patch.object(LeaseMember, "_lease_with", lambda member, _: member._lease_ms))


def _new_shards_are_not_left(stack: ExitStack) -> None:
    """A member of the last resort claims the shards of a new namespace at once."""
    stack.enter_context(patch.object(UnclaimedShards, "may_claim", True))


def _gained_shards_restart_the_time(stack: ExitStack) -> None:
    """Each shard that a member gains begins the time again in which a new namespace is left to event processes."""
    on_claims = UnclaimedShards.on_claims
    known: WeakKeyDictionary[UnclaimedShards, set[int]] = WeakKeyDictionary()

    def on_claims_of_known(
        own: UnclaimedShards, claims: Mapping[int, StoredClaim | None], now: float, *, is_driven: bool
    ) -> None:
        if claims.keys() - known.get(own, set()):
            own._since = None
        known[own] = {*claims}
        on_claims(own, claims, now, is_driven=is_driven)

    stack.enter_context(patch.object(UnclaimedShards, "on_claims", on_claims_of_known))


def _connections_restart_the_time(stack: ExitStack) -> None:
    """Each connection begins the same time again."""

    def on_answer(own: UnclaimedShards, now: float, *, is_first: bool) -> None:
        if is_first:
            own._since = None

    stack.enter_context(patch.object(UnclaimedShards, "on_answer", on_answer))


IN_THE_PRODUCT: Mapping[str, Patches] = {
    "equal fences": _equal_fences,
    "claims again": _claims_again,
    "impatient": _impatient,
    "no hold": _no_hold,
    "no damping": _no_damping,
    "undriven shards are kept": _undriven_shards_are_kept,
    "lost claims are given up": _lost_claims_are_given_up,
    "fences are not compared": _fences_are_not_compared,
    "wakes get lost": _wakes_get_lost,
    "rows are not needed": _rows_are_not_needed,
    "loops are not watched": _loops_are_not_watched,
    "ranks are ignored": _ranks_are_ignored,
    "leases of others are ignored": _leases_of_others_are_ignored,
    "new shards are not left": _new_shards_are_not_left,
    "gained shards restart the time": _gained_shards_restart_the_time,
    "connections restart the time": _connections_restart_the_time,
}


@contextmanager
def planted(mutant: str) -> Iterator[frozenset[str]]:
    """Plant a bug. The value is the set of bugs for the simulation."""
    with ExitStack() as stack:
        if mutant in IN_THE_PRODUCT:
            IN_THE_PRODUCT[mutant](stack)
        yield frozenset({mutant} & {*IN_THE_SIMULATION})
