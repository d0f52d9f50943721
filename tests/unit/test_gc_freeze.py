"""A process that imports modules collects no garbage, and a long-lived process seldom collects all objects."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tickwheel.runtime.gc_freeze import collect_seldom, without_gc

pytestmark = pytest.mark.unit


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """The number of objects that each collection of all objects freed. The thresholds are restored after the test."""
    thresholds = gc.get_threshold()
    found: list[int] = []

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            found.append(info["collected"])

    gc.callbacks.append(count)
    yield found
    gc.callbacks.remove(count)
    gc.set_threshold(*thresholds)


def test_no_collection_walks_all_objects_while_the_objects_of_many_calls_appear(full_collections: list[int]) -> None:
    gc.collect()
    full_collections.clear()
    collect_seldom()
    # 6,000 calls in flight have about as many objects.
    objects: list[list[int]] = [[] for _ in range(1_500_000)]
    assert len(objects) == 1_500_000
    assert not full_collections


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collection_pauses_during_imports_and_then_is_as_before(is_enabled: bool) -> None:
    frozen = gc.get_freeze_count()
    if not is_enabled:
        gc.disable()
    try:
        with suppress(ImportError), without_gc():
            during = gc.isenabled()
            raise ImportError
        after = gc.isenabled()
    finally:
        gc.enable()
    assert (during, after) == (False, is_enabled)
    assert gc.get_freeze_count() == frozen
