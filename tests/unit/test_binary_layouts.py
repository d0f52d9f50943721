"""Each packed layout in Python equals the layout that the comment of a script or fragment describes."""

import re
from struct import Struct

import pytest

from tickwheel.driver import firing
from tickwheel.model import queue_config
from tickwheel.operations import (
    cancel,
    dequeue,
    enqueue,
    exact_order,
    explain,
    message_packer,
    reschedule,
    results,
    sessions,
)
from tickwheel.storage import fence, record, scripts, transition

pytestmark = pytest.mark.unit

# Lua's `struct` has integers of 6 bytes. Python's has none, so they are a pair of 2 and 4 bytes.
_FORMATS = {"B": "B", "I2": "H", "I4": "I", "I6": "HI", "I8": "Q", "c4": "4s", "c8": "8s", "c16": "16s"}
_FIELD = re.compile(r"(?<![A-Za-z0-9])(B|I[2468]|c(?:4|8|16))(?![A-Za-z0-9])")
LAYOUTS = [
    (record.HEAD, "_record", "state B, flags B, version I4, attempts I2, until I6"),
    (record.FIXED, "_record", "incarnation I6, due I6, digest c8, nonce I4"),
    (record._OVERRIDES, "_record", "lease_ms I4, max_attempts I2"),
    (fence._FENCE, "claim_shard", "epoch I8, connection number I8"),
    (queue_config._CONTEXT, "_queue_context", "version of the queue's configuration I4, uid c4, queue number I2,"
     " options B, entries of history to keep I4"),
    (queue_config._LEADER, "_driver_context", "max_attempts I2, retention in ms I6, retention of errored messages in"
     " ms I6"),
    (firing._BOUND, "_driver_context", "the clock guard's bound I6: `now` is at most this time, which is stored as the"
     " clock's new `high`. Budget of the call I4"),
    (sessions._SESSION, "_session", "sequence I8, life in ms I4, options B"),
    (cancel._CANCEL, "cancel", "retention in ms I6; 1 to release exclusive values at once, else 0 B"),
    (reschedule._RESCHEDULE, "reschedule", "clock guard in ms I4, longest delay in ms I6"),
    (reschedule._NEW_TIMES, "reschedule", "input B, when I6, deadline I8"),
    (enqueue._CALL, "enqueue", "clock guard in ms I4, longest delay in ms I6"),
    (message_packer._HEAD, "enqueue", "record flags B, input B, when I6"),
    (results.RESULT, "extend", "code B, state B, version I4, lease until I6"),
    (dequeue._HEAD, "dequeue", "status B, next deadline I8 (+ 2^52; 2^53-1: none), now I8"),
    (dequeue._PARAMS, "dequeue", "limit I2, lease of the call I4 (0: the message's, else the queue's), lease of the"
     " queue I4, maximum bytes of records I4, maximum bytes of payloads in `bodies` I4, budget in index entries I4,"
     " token c16"),
    (exact_order._BOUNDS, "peek_orders", "limit I2, number of entries to walk I4"),
    (exact_order._ORDER, "peek_orders", "deadline I8 (+ 2^52) and rank I6"),
    (explain._POSITION, "explain", "now I6 and ahead in `ready` I6 and ahead in its value I6"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "file", "text"), LAYOUTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_binary_layout_matches_its_script(layout: Struct, file: str, text: str) -> None:
    lines = (scripts.folder() / f"{file}.lua").read_text().splitlines()
    comments = " ".join(line.strip().removeprefix("--").strip() for line in lines if line.lstrip().startswith("--"))
    assert text in comments
    fields = _FIELD.findall(text)
    assert layout.format == ">" + "".join(_FORMATS[field] for field in fields)


def test_the_packed_tail_of_an_event_can_be_read() -> None:
    source = scripts.load("promote").source
    assert (transition._TAIL.format, "pack('>I4I2I2B'" in source) == (">IHHB", True)
    assert (transition._DETAIL.format, "pack('>BI6I8I2c0'" in source) == (">HIQH", True)
