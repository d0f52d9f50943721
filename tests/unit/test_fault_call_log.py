"""The call log of the fault harness: open calls of a killed process are unknown. Recovery times are measured."""

from math import inf
from pathlib import Path

import pytest

from tests.fault.harness.call_log import FAIL, OK, UNKNOWN, CallLog, read
from tests.fault.harness.lateness import recovery_s, spread_ms, waits
from tickwheel import LeaseLost, NotDurable, Unavailable
from tickwheel.errors import TickwheelError
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.unit


def test_a_call_without_an_answer_of_a_killed_process_is_unknown(tmp_path: Path) -> None:
    log = CallLog(tmp_path, "p")
    with log.call("enqueue", "plain", ["a"]) as answer:
        answer.value = [True]
    file = tmp_path / "p.calls"
    whole = file.read_bytes()
    with log.call("enqueue", "plain", ["b"]):
        pass
    # The process was killed before it wrote the reply, while it wrote the next call.
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]) + whole[:20])

    answered, left_open = read(tmp_path)
    assert (answered.outcome, answered.value, answered.ids) == (OK, [True], ["a"])
    assert (left_open.outcome, left_open.returned, left_open.ids) == (UNKNOWN, None, ["b"])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LeaseLost("lost"), FAIL),
        (NotDurable("too few"), UNKNOWN),
        (Unavailable("sent"), UNKNOWN),
        (Unavailable("not sent", may_have_happened=False), FAIL),
        (TickwheelError("whatever"), UNKNOWN),
    ],
)
def test_a_call_has_failed_only_if_nothing_was_done(error: TickwheelError, outcome: str, tmp_path: Path) -> None:
    with CallLog(tmp_path, "p").call("complete", "plain", ["a"]):
        raise error
    [call] = read(tmp_path)
    assert call.outcome == outcome


def test_the_name_of_a_process_is_never_used_again(tmp_path: Path) -> None:
    CallLog(tmp_path, "p")
    with pytest.raises(FileExistsError):
        CallLog(tmp_path, "p")


def invisible(id: str, due_ms: int) -> OutboxTransition:
    return OutboxTransition(1, id, None, 1, 1, None, State.INVISIBLE, due_ms - 1_000, due_ms, 0, due_ms=due_ms)


def promoted(id: str, at_ms: int, late_ms: int) -> OutboxTransition:
    return OutboxTransition(1, id, None, 1, 2, State.INVISIBLE, State.PENDING, at_ms, 0, 0, lateness_ms=late_ms)


def cancelled(id: str, at_ms: int) -> OutboxTransition:
    return OutboxTransition(1, id, None, 1, 2, State.INVISIBLE, State.CANCELLED, at_ms, 0, 0)


# Due before the fault at 1,000; due after the fault and on time; late; on time again.
SLOW = [promoted("a", 4_050, 3_060), promoted("b", 1_300, 0), promoted("c", 5_000, 3_500), promoted("d", 5_200, 90)]
QUICK = [promoted("e", 1_010, 0)]


def recovery(*shards: list[OutboxTransition], since_ms: float = 1_000, until_ms: float = inf) -> float | None:
    return recovery_s(list(waits(list(shards))), since_ms, until_ms)


def test_recovery_lasts_until_the_last_late_message_due_after_the_fault_on_the_slowest_shard() -> None:
    assert recovery(QUICK, SLOW) == pytest.approx(4.0)
    assert recovery(QUICK) == 0.0
    assert recovery(QUICK, since_ms=2_000) is None
    assert spread_ms([QUICK, SLOW]) == {"p50": 90, "p99": 3_500, "max": 3_500}


def test_a_shard_that_stays_late_has_not_recovered() -> None:
    assert recovery(QUICK, [invisible("f", 1_500)]) == inf


def test_a_message_cancelled_long_after_its_due_time_was_late() -> None:
    assert recovery(QUICK, [invisible("f", 1_500), cancelled("f", 9_000)]) == pytest.approx(8.0)
    assert recovery(QUICK, [invisible("f", 1_500), cancelled("f", 1_400)]) == 0.0


def test_lateness_caused_by_the_next_fault_does_not_count() -> None:
    late = [promoted("f", 9_000, 3_100)]
    assert recovery(QUICK, late, until_ms=6_000) == 0.0
    assert recovery(QUICK, late, since_ms=6_000) is None
    assert recovery(QUICK, late, until_ms=8_500) == pytest.approx(7.5)
