"""When a leader counts its shard as unreachable."""

import pytest

from tickwheel.event_process.reachability import RESIGN_AFTER_MS, STALLS_MS, Reachability

pytestmark = pytest.mark.unit

LONG = RESIGN_AFTER_MS
NOW = 1_000_000.0


def test_a_shard_to_which_no_connection_succeeds_is_lost_after_three_seconds() -> None:
    shard = Reachability(NOW)
    assert not shard.is_lost_after_error(NOW + LONG - 1, NOW, has_answered=False)
    assert shard.is_lost_after_error(NOW + LONG, NOW, has_answered=False)


def test_a_command_without_an_answer_loses_the_shard_only_if_the_next_connection_fails() -> None:
    shard = Reachability(NOW)
    assert not shard.is_lost_after_error(NOW + 2 * LONG, NOW + LONG, has_answered=True)
    assert shard.is_lost_after_error(NOW + 2 * LONG + 1, NOW + LONG, has_answered=False)


def test_a_connection_that_breaks_during_a_read_leaves_three_seconds_for_new_connections() -> None:
    shard = Reachability(NOW)
    assert not shard.is_lost_after_error(NOW + LONG - 1, NOW, has_answered=True)
    assert not shard.is_lost_after_error(NOW + 2 * LONG - 2, NOW + LONG, has_answered=False)
    assert shard.is_lost_after_error(NOW + 2 * LONG - 1, NOW + LONG, has_answered=False)


@pytest.mark.parametrize(("pause", "is_lost"), [(STALLS_MS - 1, True), (STALLS_MS, False)])
def test_a_second_command_without_an_answer_within_a_minute_loses_the_shard(pause: float, is_lost: bool) -> None:
    shard = Reachability(NOW)
    for at, expected in ((NOW, False), (NOW + pause, is_lost)):
        assert shard.is_lost_after_error(at, at - LONG, has_answered=True) == expected


def test_connections_that_break_at_once_and_are_accepted_again_do_not_lose_the_shard() -> None:
    shard = Reachability(NOW)
    for at in range(10):
        assert not shard.is_lost_after_error(NOW + at * LONG, NOW + at * LONG - 1, has_answered=True)
