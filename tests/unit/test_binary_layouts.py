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
from tickwheel.operations.removal import purge
from tickwheel.storage import fence, record, scripts, timer, transition

pytestmark = pytest.mark.unit

# Lua's `struct` has integers of 6 bytes. Python's has none, so they are a pair of 2 and 4 bytes.
_FORMATS = {"B": "B", "I2": "H", "I4": "I", "I6": "HI", "I8": "Q", "c4": "4s", "c8": "8s", "c16": "16s"}
_FIELD = re.compile(r"(?<![A-Za-z0-9])(B|I[2468]|c(?:4|8|16))(?![A-Za-z0-9])")
LAYOUTS = [
    (record.HEAD, "_record", "state B, flags B, version I4, attempts I2, until I6"),
    (record.FIXED, "_record", "incarnation I6, due I6, digest of the message's content c8, nonce I4"),
    (record.OVERRIDES_SECTION, "_record", "lease_ms I4, max_attempts I2"),
    (fence._FENCE, "claim_shard", "epoch I8, connection number I8"),
    (queue_config._CONTEXT, "_queue_context", "version of the queue's configuration I4, uid c4, queue number I2,"
     " options B, entries of history to keep I4"),
    (queue_config._LEADER, "_driver_context", "max_attempts I2, retention in ms I6, retention of errored messages in"
     " ms I6"),
    (firing._BOUND, "_driver_context", "the bound I6: the driver's time, up to which the clock guard trusts the"
     " server's clock. It is stored as `high`. Then the budget of the call I4, in index entries (WEIGHT in"
     " _ready_indexes), and 1 if the guard holds, otherwise 0, B"),
    (sessions._SESSION, "_session", "sequence I8, lifetime in ms I4, options B"),
    (cancel._CANCEL, "cancel", "retention in ms I6; flag B"),
    (purge._PURGE, "purge", "states of the messages to remove B (bit n: state n), messages of a page I2, maximum number"
     " of messages to remove I2, budget in index entries I4"),
    (reschedule._RESCHEDULE, "reschedule", "clock guard in ms I4, longest delay in ms I6"),
    (reschedule._NEW_TIMES, "reschedule", "input B, when I6, deadline I8"),
    (enqueue._CALL, "enqueue", "clock guard in ms I4, longest delay in ms I6"),
    (message_packer._HEAD, "enqueue", "record flags B, input B, when I6"),
    (results.RESULT, "extend", "code B (DONE, LOST or NOT_FOUND), state B, version I4, end of the lease I6"),
    (dequeue._HEAD, "dequeue", "status B, next deadline I8 (sent as deadline + 2^52; 2^53-1: none), now I8"),
    (dequeue._PARAMS, "dequeue", "limit I2, lease of the call I4 (0: the message's, else the queue's), lease of the"
     " queue I4, maximum bytes of records I4, maximum bytes of payloads in `bodies` I4, budget in index entries I4 (an"
     " entry that is read counts 1, an entry that is written WEIGHT, see _ready_indexes), token c16"),
    (exact_order._BOUNDS, "peek_orders", "limit I2, number of entries to walk I4"),
    (exact_order._ORDER, "peek_orders", "deadline I8 (+ 2^52) and rank I6"),
    (explain._POSITION, "explain", "now I6, number of messages ahead in `ready` I6, number ahead in the exclusive"
     " value I6"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "file", "text"), LAYOUTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_binary_layout_matches_its_script(layout: Struct, file: str, text: str) -> None:
    assert text in comments_of(file)
    fields = _FIELD.findall(text)
    assert layout.format == ">" + "".join(_FORMATS[field] for field in fields)


def comments_of(file: str) -> str:
    lines = (scripts.folder() / f"{file}.lua").read_text().splitlines()
    return " ".join(line.strip().removeprefix("--").strip() for line in lines if line.lstrip().startswith("--"))


def python_format(lua_format: str) -> str:
    """Return the format of a Lua pattern for `struct` in Python. `c0` is a text that Python reads by its length."""
    return ">" + "".join(_FORMATS[field] for field in re.findall(r"B|[Ic]\d+", lua_format) if field != "c0")


@pytest.mark.parametrize(
    ("layout", "fragment", "code"),
    [
        # The field, which follows the length, begins with the queue's number.
        (timer._HEAD, "_fired_timers", "local time, generation, kind_and_length, start = read('>I6I4I2', batch, at)"),
        (timer._HEAD, "cascade_slot", "local time, _, kind_and_length = read('>I6I4I2', chunk, at)"),
        (transition._MARK, "_transition", "pack('>I6I2I2I2c0', until_ms, incarnation, version, kind * 16384 + #field,"),
    ],
    ids=["timer", "timer-in-a-slot", "mark"],
)
def test_the_layout_of_a_timer_matches_the_scripts(layout: Struct, fragment: str, code: str) -> None:
    assert code in (scripts.folder() / f"{fragment}.lua").read_text()
    lua_format = code[code.index(">") :].partition("'")[0]
    assert layout.format == python_format(lua_format) + "H"


def test_a_timer_has_the_bytes_of_a_mark() -> None:
    packed = timer.pack(timer.Timer(2**40 + 5, 9, timer.generation(2**16 + 3, 2**16 + 4), timer.Kind.RETIRE, b"name"))
    high, low, incarnation, version, length, queue_number = transition._MARK.unpack_from(packed)
    assert (high << 32 | low, incarnation, version, queue_number) == (2**40 + 5, 3, 4, 9)
    assert (length // 16384, length % 16384) == (timer.Kind.RETIRE, len(b"name") + 2)
    kinds = ", ".join(f"{kind.value} {kind.name.lower()}" for kind in timer.Kind)
    assert f"Kinds of timer: {kinds}." in comments_of("_transition")


def test_the_layouts_of_an_event_match_the_script() -> None:
    source = scripts.load("promote").source
    head, tail, late, detail = (
        "'>BI6c0Bc0', exclusive and 4 or 3,",
        "'>I4I2I2B'",
        "'>I6', late_ms",
        "'>BI6I8I2c0', 64 +",
    )
    assert all(f"pack({code}" in source for code in (head, tail, late, detail))
    # `c0` in the head is the queue's number. The detail repeats the last byte of the tail, with the flag.
    assert transition._ENTRY.format == python_format(head.replace("I6c0", "I6I2"))
    assert transition._TAIL.format == python_format(tail)
    assert transition._DETAIL.format == python_format(detail.replace(">B", ">"))
    assert (transition._PLAIN, transition._EXCLUSIVE, transition._DETAILED) == (3, 4, 64)
    assert f"late_ms and {transition._LATE} + change or change" in source


def test_the_options_of_a_session_match_the_scripts() -> None:
    options = (
        f"options B ({sessions._KEEPS_EMPTY}: an empty answer is stored, too; {sessions._OPENS}: the call may open the"
        f" session; {sessions._REPEATED}: the call may be a retry; {sessions._REPLAYS}: the call only repeats a stored"
        " answer, see dequeue.lua)"
    )
    assert options in comments_of("_session")
    source = scripts.load("dequeue").source
    assert f"stores_empty, stored_answer = band(session_options, {sessions._KEEPS_EMPTY}) ~= 0" in source
    assert f"if not session_record and band(session_options, {sessions._OPENS}) == 0" in source
    assert f"SHORT, NO_DEADLINE, REPLAYS = 0, 1, 2, 3, 9007199254740991, {sessions._REPLAYS}" in source
    # A dequeue ends early only if neither option is set.
    assert f"band(byte(ARGV[2], {sessions._SESSION.size}), {sessions._KEEPS_EMPTY | sessions._REPEATED}) == 0" in source
