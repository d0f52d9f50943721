"""What the log tells of many like failures."""

import logging
from datetime import timedelta

import pytest
from freezegun import freeze_time

from tickwheel.seldom import PAUSE_S, Seldom

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
