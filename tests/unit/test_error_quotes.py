"""Error texts quote the beginning of a value, however long the value is."""

import tracemalloc

import pytest

from tickwheel.model.validation import preview

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("value", ["\0" * 4_000_000, b"\0" * 4_000_000, "\U0001f600" * 1_000_000])
def test_the_preview_of_a_long_value_needs_little_memory(value: str | bytes) -> None:
    tracemalloc.start()
    try:
        text = preview(value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(text) == 80
    assert text.endswith("...")
    assert peak_bytes < 100_000


@pytest.mark.parametrize("value", ["x" * 78, b"x" * 77, 17, None, [1, 2], "it's"])
def test_a_short_value_is_quoted_whole(value: object) -> None:
    assert preview(value) == ascii(value)


def test_the_type_stands_for_a_value_that_python_cannot_print() -> None:
    assert preview(10**5_000) == "<int>"


@pytest.mark.parametrize("value", ["x" * 79, "x" * 80, "x" * 81, b"x" * 78, list(range(100))])
def test_a_value_whose_preview_would_have_more_than_80_characters_is_cut(value: object) -> None:
    assert preview(value) == ascii(value)[:77] + "..."
