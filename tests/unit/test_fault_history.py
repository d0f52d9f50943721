"""What the fault harness reads back: open calls of a killed process are unknown; how soon all was in time again."""

from pathlib import Path

import pytest

from tests.fault.harness.history import FAIL, OK, UNKNOWN, History, read
from tests.fault.harness.lateness import recovery_s, spread_ms
from tickwheel import LeaseLost, NotDurable, Unavailable
from tickwheel.errors import TickwheelError
from tickwheel.record import State
from tickwheel.transitions import Transition


def test_a_call_that_was_not_answered_before_its_process_was_killed_is_unknown(tmp_path: Path) -> None:
    history = History(tmp_path, "p")
    with history.call("enqueue", "plain", ["a"]) as answer:
        answer.value = [True]
    file = tmp_path / "p.history"
    whole = file.read_bytes()
    with history.call("enqueue", "plain", ["b"]):
        pass
    # Killed before it could write the answer, and while it wrote the next call.
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
def test_a_call_has_failed_only_where_nothing_was_done(error: TickwheelError, outcome: str, tmp_path: Path) -> None:
    with History(tmp_path, "p").call("complete", "plain", ["a"]):
        raise error
    [call] = read(tmp_path)
    assert call.outcome == outcome


def test_the_name_of_a_process_is_never_used_again(tmp_path: Path) -> None:
    History(tmp_path, "p")
    with pytest.raises(FileExistsError):
        History(tmp_path, "p")


def promoted(at_ms: int, late_ms: int) -> Transition:
    return Transition(1, "m", None, 1, 2, State.INVISIBLE, State.PENDING, at_ms, 0, 0, lateness_ms=late_ms)


def test_recovery_is_until_the_first_in_time_of_what_was_due_after_the_fault_on_the_slowest_shard() -> None:
    # Due before the fault at 1,000; due after it and late; due after it and in time.
    slow = [promoted(1_050, 60), promoted(4_000, 2_500), promoted(4_200, 90), promoted(4_300, 0)]
    quick = [promoted(1_010, 0)]
    assert recovery_s([quick, slow], 1_000) == pytest.approx(3.2)
    assert recovery_s([quick], 1_000) == pytest.approx(0.01)
    assert recovery_s([quick], 2_000) is None
    assert spread_ms([quick, slow]) == {"p50": 60, "p99": 2_500, "max": 2_500}
