"""The lines of callers that take turns, and the answers that the servers owe."""

import pytest

from tickwheel.redis import awaited_answers
from tickwheel.redis.awaited_answers import AwaitedAnswers
from tickwheel.redis.caller_lines import CallerLines

pytestmark = pytest.mark.unit


def channels_of(**counts: int) -> CallerLines[bytes]:
    missing = CallerLines[bytes]()
    for caller, count in counts.items():
        for n in range(count):
            missing.add(f"{caller}{n}".encode(), caller)
    return missing


def test_the_callers_share_a_part() -> None:
    missing = channels_of(a=100, b=2, c=100)
    assert missing.take(7) == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"a2"]
    assert missing.take(2) == [b"c2", b"a3"]
    assert len(missing.take(1_000)) == 193
    assert not missing


def test_a_caller_without_channels_has_no_turn() -> None:
    missing = channels_of(a=1, b=1)
    missing.discard(b"a0", "a")
    missing.discard(b"a0", "a")
    missing.discard(b"absent", "b")
    assert (missing.take(5), bool(missing)) == ([b"b0"], False)


def test_a_channel_moves_to_the_turns_of_a_caller_with_fewer_channels() -> None:
    missing = channels_of(a=3, b=1)
    assert missing.move(b"a2", "a", "b")
    assert not missing.move(b"a2", "b", "a")
    assert not missing.move(b"absent", "a", "c")
    assert missing.move(b"a1", "a", "c")
    assert missing.take(10) == [b"a0", b"b0", b"a2", b"a1"]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(awaited_answers, "time", clock)
    return clock


def test_the_next_part_waits_for_the_answers_of_all_servers(clock: Clock) -> None:
    answers = AwaitedAnswers()
    assert answers.seconds_left() == 0
    answers.on_sent("A", 2)
    answers.on_sent("B", 1)
    answers.on_answer("B")
    answers.on_answer("A")
    assert answers.seconds_left() > 0
    answers.on_answer("A")
    answers.on_answer("A")
    assert answers.seconds_left() == 0
    answers.on_sent("A", 1)
    answers.drop("A")
    assert answers.seconds_left() == 0


def test_the_next_part_does_not_wait_for_a_server_that_does_not_answer(clock: Clock) -> None:
    answers = AwaitedAnswers()
    answers.on_sent("frozen", 500)
    clock.now += 0.2
    assert answers.seconds_left() == pytest.approx(0.05)
    clock.now += 0.1
    assert answers.seconds_left() == 0
    answers.on_sent("frozen", 500)
    assert answers.seconds_left() == 0
    answers.on_answer("frozen")
    assert answers.seconds_left() == 0.25
