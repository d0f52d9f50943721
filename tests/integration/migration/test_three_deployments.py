"""One Celery application runs in three deployments, and each call ends in the same way in all of them.

The deployments: Celery alone; every task routed to Tickwheel; every task routed, and the first run of each call in
Tickwheel killed. In the last two, workers of Celery run, too. `CALLS` is the table of the calls, of their ends, and of
the sides that must have run them.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple

import pytest
from celery import chain, chord, group
from celery.result import GroupResult

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.wait_until import eventually

pytestmark = [
    pytest.mark.integration,
    # Celery's result backend calls a method of redis-py that is deprecated.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]
ALONE, ROUTED, WITH_KILLS = "Celery alone", "routed", "routed with kills"
SUCCESS: Final = "task_success NoneType"
# The state of a call without a result.
PENDING: Final = "PENDING"


class End(NamedTuple):
    """How a call ends: its state with its value or the class of its error, and its signals and handlers, sorted.

    If the call consists of several calls, the signals are those of all.
    """

    outcome: str
    signals: tuple[str, ...]


class Row(NamedTuple):
    """A call, and its end in Celery. ``routed`` and ``killed`` are its ends in Tickwheel, without and with kills, if
    these differ for a known reason. ``ran_by`` names the sides that run the call if its task is routed, in their order.
    """

    call: Callable[[], Any]
    celery: End
    ran_by: str = "tickwheel"
    routed: End | None = None
    killed: End | None = None

    def end(self, how: str) -> End:
        routed = self.routed or self.celery
        return {ALONE: self.celery, ROUTED: routed, WITH_KILLS: self.killed or routed}[how]

    def sides(self, how: str) -> str:
        return self.ran_by if how != ALONE or not self.ran_by else "celery"

    def kills(self, how: str) -> int:
        # No row has several calls that run in Tickwheel.
        return int(how == WITH_KILLS and "tickwheel" in self.ran_by)


def success(value: str, *others: str) -> End:
    return End(f"SUCCESS {value}", tuple(sorted([*others, SUCCESS])))


def failure(error: str, *others: str) -> End:
    return End(f"FAILURE {error}", tuple(sorted([*others, f"task_failure {error}"])))


def revocation(expired: bool) -> End:
    return End("REVOKED TaskRevokedError", (f"task_revoked:terminated=False,expired={expired} NoneType",))


def retries(count: int, error: str = "NoneType") -> list[str]:
    return [f"task_retry {error}"] * count


def revoked_call() -> Any:
    sent = shop.note.apply_async(("revoked",), countdown=2)
    sent.revoke()
    return sent


def over_limit(call: Callable[[], Any]) -> Row:
    handler = "on_failure TimeLimitExceeded"
    # Celery sends the signal at the time limit, and again for the process that it kills.
    in_celery = failure("TimeLimitExceeded", handler, "task_failure TimeLimitExceeded")
    return Row(call, in_celery, routed=failure("TimeLimitExceeded", handler))


CALLS: Final = {
    "value": Row(lambda: shop.note.delay("x"), success("noted x")),
    "own queue": Row(lambda: shop.urgent.delay(), success("None")),
    "countdown": Row(lambda: shop.note.apply_async(("late",), countdown=0.5), success("noted late")),
    # A killed run counts as a retry, and sends no signal.
    "retries": Row(
        lambda: shop.retried.delay(2),
        success("after 2", *retries(2)),
        killed=success("after 2", *retries(1)),
    ),
    "automatic retries": Row(
        lambda: shop.patient.delay(),
        success("patient", *retries(5, "KeyError")),
        killed=success("patient", *retries(4, "KeyError")),
    ),
    "retries used up": Row(
        lambda: shop.unsteady.delay(),
        failure("ConnectionError", *retries(2, "ConnectionError")),
        killed=failure("ConnectionError", *retries(1, "ConnectionError")),
    ),
    "error": Row(lambda: shop.boom.delay(), failure("ValueError")),
    "ignored": Row(lambda: shop.ignored.delay(), End(PENDING, ())),
    "rejected": Row(lambda: shop.rejected.delay(), failure("Reject")),
    "rejected and requeued": Row(lambda: shop.requeued.delay(), success("done")),
    "expired": Row(lambda: shop.note.apply_async((), countdown=1, expires=0.1), revocation(expired=True), ""),
    # In Celery, a worker sends the signal, and in Tickwheel the program that revokes the call.
    "revoked": Row(revoked_call, revocation(expired=False), ""),
    "time limit": over_limit(lambda: shop.over.delay()),
    "time limit in native code": over_limit(lambda: shop.stuck.delay()),
    "soft limit": Row(lambda: shop.soft.delay(catches=False), failure("SoftTimeLimitExceeded")),
    "soft limit, caught": Row(lambda: shop.soft.delay(catches=True), success("cleaned up")),
    "exit": Row(lambda: shop.exits.delay(), failure("WorkerLostError")),
    # Tickwheel handles this error as the end of a process, as earlier versions of Celery's process pool do.
    "own cancellation": Row(
        lambda: shop.cancels_itself.delay(), failure("CancelledError"), routed=failure("WorkerLostError")
    ),
    "killed": Row(lambda: shop.killed.delay(), failure("WorkerLostError")),
    # The killed run was the only one that the task allows.
    "only run": Row(lambda: shop.once.delay(), success("once"), killed=failure("WorkerLostError")),
    "rate limit": Row(lambda: shop.limited.delay(), success("limited"), "celery"),
    "time limit of eight days": Row(lambda: shop.lengthy.delay(), success("lengthy"), "celery"),
    # The other calls of the task have a queue that Tickwheel does not allow.
    "another queue": Row(lambda: shop.elsewhere.apply_async(queue="celery"), success("elsewhere"), "celery"),
    # Celery sends the last call of a chain as a call with a route of its own.
    "chain": Row(
        lambda: chain(shop.note.si("first"), shop.note.si("second")).delay(),
        success("noted second", SUCCESS),
        "celery tickwheel",
    ),
    "group": Row(
        lambda: group(shop.note.si("one"), shop.note.si("two")).apply_async(),
        success("['noted one', 'noted two']", SUCCESS),
        "celery",
    ),
    "chord": Row(
        lambda: chord([shop.note.si("one"), shop.note.si("two")])(shop.joined.s()),
        success("noted one, noted two", SUCCESS, SUCCESS),
        "celery",
    ),
    "priority": Row(lambda: shop.prioritized.apply_async(priority=3), success("priority 3")),
    "link": Row(lambda: shop.note.apply_async(("y",), link=shop.note.si("z")), success("noted y"), "celery"),
    "replaced": Row(lambda: shop.replaced.delay(), success("noted instead"), "tickwheel celery"),
    # A message cannot be changed.
    "retried with other arguments": Row(
        lambda: shop.changed.delay(0),
        failure("MaxRetriesExceededError", *retries(3)),
        routed=failure("Reject"),
    ),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", [ALONE, ROUTED, WITH_KILLS])
def test_every_call_ends_alike_in_celery_and_in_tickwheel(
    deployment: Shop, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # This process revokes a call.
    monkeypatch.setattr(shop, "SIGNALS", deployment.signals_path)
    with ExitStack() as processes:
        processes.enter_context(deployment.celery_worker("-P", "prefork", "-c", "2"))
        if how != ALONE:
            for task in shop.celery.tasks:
                if task.startswith(("shop.", "held.")):
                    route(task, "tickwheel")
            processes.enter_context(deployment.event_process())
            processes.enter_context(deployment.tickwheel_worker("--processes", "4", kill_first=how == WITH_KILLS))
        sent = {name: row.call() for name, row in CALLS.items()}
        ends = {name: row.end(how) for name, row in CALLS.items()}
        outcomes = {name: outcome(deployment, result, ends[name]) for name, result in sent.items()}
        assert outcomes == {name: end.outcome for name, end in ends.items()}
        expected = {name: end.signals for name, end in ends.items()}

        def signals() -> dict[str, tuple[str, ...]]:
            return {name: signals_of(deployment, result) for name, result in sent.items()}

        # A worker stores the result first. The comparison below names what is missing.
        with suppress(AssertionError):
            eventually(lambda: signals() == expected, "the signals are sent", pause=0.05)
    # And no more of them while the workers end.
    assert signals() == expected
    assert sent["ignored"].state == PENDING
    sides = {name: sides_of(deployment, result) for name, result in sent.items()}
    assert sides == {name: row.sides(how) for name, row in CALLS.items()}
    kills = {name: deployment.kills(*calls_of(result)) for name, result in sent.items()}
    assert kills == {name: row.kills(how) for name, row in CALLS.items()}


@pytest.mark.parametrize("how", [ALONE, ROUTED])
def test_waiting_calls_run_in_the_order_of_their_priorities(deployment: Shop, how: str) -> None:
    if how == ROUTED:
        route("shop.note", "tickwheel")
    ids = [shop.note.apply_async((priority,), priority=priority).id for priority in (9, 3, 0, 6)]
    with deployment.tickwheel_worker() if how == ROUTED else deployment.celery_worker():
        deployment.wait_until_run(ids)
    assert [line[-1] for line in deployment.record if line[2] in ids] == ["0", "3", "6", "9"]
    assert {line[0] for line in deployment.record if line[2] in ids} == {"tickwheel" if how == ROUTED else "celery"}


def outcome(deployment: Shop, result: Any, expected: End) -> str:
    if expected.outcome == PENDING:
        # There is no result to wait for.
        deployment.wait_until_run(calls_of(result), 120)
        return str(result.state)
    value = result.get(timeout=120, propagate=False)
    if isinstance(result, GroupResult):
        return f"{'SUCCESS' if result.successful() else 'FAILURE'} {value}"
    return f"{result.state} {type(value).__name__ if isinstance(value, BaseException) else value}"


def calls_of(result: Any) -> list[str]:
    """Return the ids of the calls that a result consists of, in the order of their runs."""
    before = [] if result.parent is None else calls_of(result.parent)
    return [*before, *([call.id for call in result.results] if isinstance(result, GroupResult) else [result.id])]


def signals_of(deployment: Shop, result: Any) -> tuple[str, ...]:
    return tuple(sorted(signal for id_ in calls_of(result) for signal in deployment.every_signal_of(id_)))


def sides_of(deployment: Shop, result: Any) -> str:
    """Return the sides that ran the calls, each once, in the order of the calls."""
    ran = deployment.ran(*calls_of(result))
    return " ".join(dict.fromkeys(side for sides in ran.values() for side in sides))
