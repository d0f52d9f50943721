"""What the log tells of many like failures."""

import logging
from datetime import timedelta

import pytest
from freezegun import freeze_time

from tickwheel.runtime.log_throttle import PAUSE_S, Seldom

pytestmark = pytest.mark.unit


def test_the_same_is_told_once_in_a_while_and_another_at_once() -> None:
    seldom = Seldom()
    with freeze_time() as clock:
        assert [seldom.level("refused"), seldom.level("refused"), seldom.level("frozen")] == [
            logging.WARNING,
            logging.DEBUG,
            logging.WARNING,
        ]
        clock.tick(timedelta(seconds=PAUSE_S - 1))
        assert seldom.level("refused") == logging.DEBUG
        clock.tick(timedelta(seconds=1))
        assert seldom.level("refused") == logging.WARNING


def test_the_same_trouble_is_told_once_whatever_it_counts_and_whichever_shard_has_it() -> None:
    seldom = Seldom()
    assert seldom.is_due("lost: no answer from a:1 in 5.1 s and 14 attempts: refused")
    assert not seldom.is_due("lost: no answer from a:1 in 10 s and 9 attempts: refused")
    assert seldom.is_due("lost: no answer from a:2 in 10 s and 9 attempts: refused")
    assert seldom.is_due("no server of the cluster has shard 3 now")
    assert not seldom.is_due("no server of the cluster has shard 63 now")


def test_it_is_known_that_something_was_told() -> None:
    seldom = Seldom()
    assert not seldom.has_told
    seldom.level("refused")
    assert seldom.has_told
    seldom.has_told = False
    seldom.level("refused")
    assert not seldom.has_told
