"""Lists are split into chunks of a bounded size."""

import pytest

from tickwheel.runtime.chunks import iter_chunks

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("items", "chunks"),
    [([], []), ([1], [[1]]), ([1, 2, 3], [[1, 2, 3]]), ([1, 2, 3, 4], [[1, 2, 3], [4]])],
)
def test_every_item_is_in_one_chunk_and_only_the_last_chunk_is_short(items: list[int], chunks: list[list[int]]) -> None:
    assert list(iter_chunks(items, 3)) == chunks
