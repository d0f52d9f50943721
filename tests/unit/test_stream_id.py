"""The ids of stream entries."""

import pytest

from tickwheel.storage.stream_id import id_after

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("entry_id", "after"),
    [
        (b"1795309014954-18446744073709551615", b"1795309014955-0"),
        (b"18446744073709551615-18446744073709551615", b"18446744073709551615-18446744073709551615"),
        (b"1795309014954-0", b"1795309014954-1"),
        (b"1700000000000-9", b"1700000000000-10"),
        (b"0-0", b"0-1"),
    ],
)
def test_the_id_after_an_entry_is_the_next_id_if_there_is_one(entry_id: bytes, after: bytes) -> None:
    assert id_after(entry_id) == after
