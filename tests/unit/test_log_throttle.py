"""The throttling of log lines about similar failures."""

import logging
from datetime import timedelta

import pytest
from freezegun import freeze_time

from tickwheel.runtime.log_throttle import PAUSE_S, LogThrottle

pytestmark = pytest.mark.unit


def test_a_repeated_text_is_logged_once_in_a_while_and_another_text_at_once() -> None:
    log_throttle = LogThrottle()
    with freeze_time() as clock:
        assert [log_throttle.level("refused"), log_throttle.level("refused"), log_throttle.level("frozen")] == [
            logging.WARNING,
            logging.DEBUG,
            logging.WARNING,
        ]
        clock.tick(timedelta(seconds=PAUSE_S - 1))
        assert log_throttle.level("refused") == logging.DEBUG
        clock.tick(timedelta(seconds=1))
        assert log_throttle.level("refused") == logging.WARNING


def test_counts_and_shard_numbers_do_not_make_texts_different() -> None:
    log_throttle = LogThrottle()
    assert log_throttle.should_log("lost: no answer from a:1 in 5.1 s and 14 attempts: refused")
    assert not log_throttle.should_log("lost: no answer from a:1 in 10 s and 9 attempts: refused")
    assert log_throttle.should_log("lost: no answer from a:2 in 10 s and 9 attempts: refused")
    assert log_throttle.should_log("no server of the cluster has shard 3 now")
    assert not log_throttle.should_log("no server of the cluster has shard 63 now")


def test_has_logged_is_true_after_a_log_line() -> None:
    log_throttle = LogThrottle()
    assert not log_throttle.has_logged
    log_throttle.level("refused")
    assert log_throttle.has_logged
    log_throttle.has_logged = False
    log_throttle.level("refused")
    assert not log_throttle.has_logged
