"""Fixtures of all property tests."""

import pytest

from tickwheel import limits


@pytest.fixture(autouse=True)
def few_queue_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the numbers of queues, so that a queue that is created again soon takes the number of a deleted queue."""
    monkeypatch.setattr(limits, "QUEUES_MAX", 3)
