"""One Celery application runs in three deployments, and each call ends in the same way in all of them.

The deployments: Celery alone; every task routed to Tickwheel; every task routed, and the first run of each call killed.
`CALLS` is the table of the calls and their outcomes: the state and the value, or the class of the error.
"""

from collections.abc import Callable
from contextlib import ExitStack
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


class Row(NamedTuple):
    """A call, and its outcome in Celery. ``routed`` is the outcome in Tickwheel if it differs, for a known reason."""

    call: Callable[[], Any]
    outcome: str
    routed: str | None = None


def revoked_call() -> Any:
    sent = shop.note.apply_async(("revoked",), countdown=2)
    sent.revoke()
    return sent


CALLS: Final = {
    "value": Row(lambda: shop.note.delay("x"), "SUCCESS noted x"),
    "own queue": Row(lambda: shop.urgent.delay(), "SUCCESS None"),
    "countdown": Row(lambda: shop.note.apply_async(("late",), countdown=0.5), "SUCCESS noted late"),
    "retries": Row(lambda: shop.retried.delay(2), "SUCCESS after 2"),
    "automatic retries": Row(lambda: shop.patient.delay(), "SUCCESS patient"),
    "retries used up": Row(lambda: shop.unsteady.delay(), "FAILURE ConnectionError"),
    "error": Row(lambda: shop.boom.delay(), "FAILURE ValueError"),
    "rejected": Row(lambda: shop.rejected.delay(), "FAILURE Reject"),
    "expired": Row(lambda: shop.note.apply_async((), countdown=1, expires=0.1), "REVOKED TaskRevokedError"),
    "revoked": Row(revoked_call, "REVOKED TaskRevokedError"),
    "time limit": Row(lambda: shop.over.delay(), "FAILURE TimeLimitExceeded"),
    "time limit in native code": Row(lambda: shop.stuck.delay(), "FAILURE TimeLimitExceeded"),
    "soft limit": Row(lambda: shop.soft.delay(catches=False), "FAILURE SoftTimeLimitExceeded"),
    "soft limit, caught": Row(lambda: shop.soft.delay(catches=True), "SUCCESS cleaned up"),
    "exit": Row(lambda: shop.exits.delay(), "FAILURE WorkerLostError"),
    "killed": Row(lambda: shop.killed.delay(), "FAILURE WorkerLostError"),
    "rate limit": Row(lambda: shop.limited.delay(), "SUCCESS limited"),
    "chain": Row(lambda: chain(shop.note.si("first"), shop.note.si("second")).delay(), "SUCCESS noted second"),
    "group": Row(
        lambda: group(shop.note.si("one"), shop.note.si("two")).apply_async(), "SUCCESS ['noted one', 'noted two']"
    ),
    "chord": Row(
        lambda: chord([shop.note.si("one"), shop.note.si("two")])(shop.joined.s()), "SUCCESS noted one, noted two"
    ),
    "priority": Row(lambda: shop.prioritized.apply_async(priority=3), "SUCCESS priority 3"),
    "link": Row(lambda: shop.note.apply_async(("y",), link=shop.note.si("z")), "SUCCESS noted y"),
    "replaced": Row(lambda: shop.replaced.delay(), "SUCCESS noted instead"),
    # A message cannot be changed.
    "retried with other arguments": Row(
        lambda: shop.changed.delay(0), "FAILURE MaxRetriesExceededError", "FAILURE Reject"
    ),
}


@pytest.mark.parametrize("how", ["Celery alone", "routed", "routed with kills"])
def test_every_call_ends_alike_in_celery_and_in_tickwheel(deployment: Shop, how: str) -> None:
    is_routed = how != "Celery alone"
    with ExitStack() as processes:
        processes.enter_context(deployment.celery_worker("-P", "prefork", "-c", "2"))
        if is_routed:
            for task in shop.celery.tasks:
                if task.startswith(("shop.", "held.")):
                    route(task, "tickwheel")
            processes.enter_context(deployment.event_process())
            worker = deployment.tickwheel_worker("--processes", "3", kill_first=how == "routed with kills")
            processes.enter_context(worker)
        sent = {name: row.call() for name, row in CALLS.items()}
        assert {name: outcome(result) for name, result in sent.items()} == {
            name: row.routed if is_routed and row.routed else row.outcome for name, row in CALLS.items()
        }
        expected = {name: int(row.outcome.startswith("FAILURE")) for name, row in CALLS.items()}
        if not is_routed:
            # Celery sends the signal at the time limit, and again for the process that it kills.
            expected |= {name: 2 for name in expected if name.startswith("time limit")}

        def failures() -> dict[str, int]:
            return {name: failures_of(deployment, result.id) for name, result in sent.items()}

        # A worker stores the result first.
        eventually(lambda: failures() == expected, "the signals are sent")
    # And no more of them while the workers end.
    assert failures() == expected


@pytest.mark.parametrize("how", ["Celery alone", "routed"])
def test_waiting_calls_run_in_the_order_of_their_priorities(deployment: Shop, how: str) -> None:
    if how == "routed":
        route("shop.note", "tickwheel")
    ids = [shop.note.apply_async((priority,), priority=priority).id for priority in (9, 3, 0, 6)]
    with deployment.tickwheel_worker() if how == "routed" else deployment.celery_worker():
        deployment.wait_until_run(ids)
    assert [line[-1] for line in deployment.record if line[2] in ids] == ["0", "3", "6", "9"]


def outcome(result: Any) -> str:
    value = result.get(timeout=120, propagate=False)
    if isinstance(result, GroupResult):
        return f"{'SUCCESS' if result.successful() else 'FAILURE'} {value}"
    return f"{result.state} {type(value).__name__ if isinstance(value, Exception) else value}"


def failures_of(deployment: Shop, id_: str) -> int:
    """Return how often the signal ``task_failure`` was sent for a call."""
    return sum(line.startswith("task_failure ") for line in deployment.signals_of(id_))
