"""The Lua scripts as files: the declarations of their headers, and the composition in Python."""

import re
from collections.abc import Iterator

import pytest

from tickwheel.errors import Fenced, InvalidArgument, OutboxFull, QueueBlocked, TickwheelError
from tickwheel.storage import keys, scripts
from tickwheel.storage.script_errors import SCRIPT_ERRORS, ScriptError

pytestmark = pytest.mark.unit

NAMES = scripts.names()
FRAGMENTS = sorted(entry.name[:-4] for entry in scripts.folder().iterdir() if entry.name.startswith("_"))
# Keys other than those of shards and queues: a client's session and the digest of its call, keys of the metadata shard,
# parts of the wheel.
OTHER_KEYS = {
    *(
        "hash",
        "session",
        "call_digest?",
        "namespace",
        "queues",
        "settings",
        "election",
        "slot",
        "lists...",
        "children...",
        "queue_keys...",
    ),
    # All kinds of keys of a shard.
    "removed...",
}
# These add messages or queues, so the server rejects them if its memory is full. The others may free memory.
NEEDS_MEMORY = {"enqueue", "create_queue", "reschedule"}


def text(name: str) -> str:
    return (scripts.folder() / f"{name}.lua").read_text()


def header(name: str) -> list[str]:
    """Return the comment at the start of a script, after its first line."""
    lines = text(name).splitlines()[1:]
    end = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    return [line.removeprefix("--").strip() for line in lines[:end]]


def declared(name: str, kind: str) -> list[str]:
    """Return the names that a header declares as KEYS or INCLUDE."""
    lines = (line.removeprefix(f"{kind}:").split() for line in header(name) if line.startswith(f"{kind}:"))
    return [word for line in lines for word in line]


def code(name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not comments, with their numbers."""
    for number, line in enumerate(text(name).splitlines(), start=1):
        if number > 1 and line.strip() and not line.lstrip().startswith("--"):
            yield number, line


def test_the_folder_of_scripts_is_found() -> None:
    assert len(NAMES) > 20
    assert {"_clock", "_clock_test", "_record"} <= set(FRAGMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_begins_so_that_the_server_refuses_keys_of_another_slot(name: str) -> None:
    assert re.fullmatch(r"#!lua( flags=(allow-oom|no-writes))?", text(name).splitlines()[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_full_memory_stops_only_scripts_that_add_data(name: str) -> None:
    assert ("flags=" not in text(name).splitlines()[0]) == (name in NEEDS_MEMORY)


@pytest.mark.parametrize(
    "name", ["file_timers", "cascade_slot", "drop_slot", "promote", "expire", "retire", "trim_outbox"]
)
def test_scripts_that_write_for_an_event_process_are_fenced(name: str) -> None:
    assert "_require_fence" in declared(name, "INCLUDE")


@pytest.mark.parametrize("name", NAMES)
def test_a_header_describes_and_declares_the_whole_script(name: str) -> None:
    lines = header(name)
    assert lines[0].endswith((".", ":")) or lines[1].endswith("."), "the header must start with a sentence"
    assert not re.match(r"(KEYS|INCLUDE|ARGV|Reply|Errors|Cost)\b", lines[0])
    for part in ("KEYS:", "Reply", "Cost"):
        assert sum(line.startswith(part) for line in lines) == 1, part
    source = "\n".join(line for file in [name, *declared(name, "INCLUDE")] for _, line in code(file))
    has_arguments = any(line.startswith("ARGV[") for line in lines)
    assert has_arguments == ("ARGV" in source)
    can_fail = "error_reply" in source or "flags=" not in text(name).splitlines()[0]
    error_lines = [line for line in lines if line.startswith("Errors")]
    assert len(error_lines) == can_fail


def codes_in(name: str) -> set[str]:
    """Return the error codes in the code of one file: strings that start with a code and a space."""
    return {word for _, line in code(name) for word in re.findall(r"'([A-Z]{6,}) ", line)}


@pytest.mark.parametrize("name", NAMES)
def test_the_errors_of_a_script_equal_those_of_its_header(name: str) -> None:
    included = declared(name, "INCLUDE")
    raised = set().union(*map(codes_in, [name, *included]))
    if name not in ("enqueue", "dequeue"):
        # Only these two receive the option that a blocked queue sets.
        raised.discard("BLOCKED")
    if name != "enqueue" and "_require_outbox_room" not in included:
        raised.discard("OUTBOXFULL")
    errors = " ".join(line for line in header(name) if line.startswith("Errors"))
    assert set(re.findall(r"\b[A-Z]{6,}\b", errors)) == raised


def test_the_table_of_script_errors_has_exactly_the_codes_that_scripts_raise() -> None:
    assert set(SCRIPT_ERRORS) == set().union(*map(codes_in, [*NAMES, *FRAGMENTS]))


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (
            "BLOCKED the queue is blocked",
            QueueBlocked,
            "queue 'q': the queue is blocked; `unblock` the queue to continue",
        ),
        ("TOOFAR 3", InvalidArgument, "due must be within 1825 days from now, by the clock of the shard's server"),
        ("TOOMANYQUEUES a namespace has at most 9", TickwheelError, "a namespace has at most 9"),
        ("CORRUPT slot 2:1 holds", TickwheelError, "queue 'q': CORRUPT slot 2:1 holds"),
        ("OOM command not allowed", TickwheelError, "queue 'q': OOM command not allowed"),
    ],
)
def test_an_error_of_a_script_becomes_the_exception_of_the_table(
    reply: str, kind: type[TickwheelError], text: str
) -> None:
    error = ScriptError(reply).to_tickwheel_error("queue 'q'")
    assert (type(error), str(error)) == (kind, text)


def test_the_numbers_of_a_script_error_are_attributes_of_its_exception() -> None:
    error = ScriptError("OUTBOXFULL 12345 1024").to_tickwheel_error("queue 'q'")
    assert isinstance(error, OutboxFull)
    assert (error.size, error.limit) == (12_345, 1_024)
    assert str(error).startswith("queue 'q': the outbox is full: 12,345 bytes of events are not yet relayed")

    fenced = ScriptError("FENCED 17 the shard is held by epoch 18").to_tickwheel_error("shard 0")
    assert isinstance(fenced, Fenced)
    assert (fenced.held, str(fenced)) == (17, "shard 0: FENCED the shard is held by epoch 18")


def test_a_number_that_the_script_did_not_send_is_none() -> None:
    fenced = ScriptError("FENCED the shard is driven under another fence").to_tickwheel_error("shard 0")
    assert isinstance(fenced, Fenced)
    assert (fenced.held, str(fenced)) == (None, "shard 0: FENCED the shard is driven under another fence")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_declares_only_known_keys_each_once(name: str) -> None:
    names = declared(name, "KEYS")
    assert names
    assert set(names) <= {*keys.SHARD_KEYS, *keys.QUEUE_KEYS, *OTHER_KEYS}
    assert len(set(names)) == len(names)
    assert all(not key.endswith("...") for key in names[:-1])


def test_scripts_that_wait_for_replicas_have_a_hash_as_first_key() -> None:
    # `queues` has a field for each queue, and no other field.
    others = {"replication_barrier", "check_permissions", "raise_queue_version", "attend_election"}
    firsts = {declared(name, "KEYS")[0] for name in NAMES if name not in others}
    assert firsts <= {"clock", "namespace", "messages", "config"}


@pytest.mark.parametrize("name", NAMES)
def test_a_script_includes_only_existing_fragments_each_once(name: str) -> None:
    names = declared(name, "INCLUDE")
    assert set(names) <= set(FRAGMENTS)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_includes_the_fragments_that_its_fragments_need(name: str) -> None:
    included = declared(name, "INCLUDE")
    for position, fragment in enumerate(included):
        needs = [line for line in text(fragment).splitlines() if line.startswith("-- Needs:")]
        for needed in re.findall(r"\b_[a-z_]+", " ".join(needs)):
            assert needed in included[:position], f"{fragment} needs {needed} before it"


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_has_a_description_and_is_used(name: str) -> None:
    assert text(name).startswith("-- ")
    users = [script for script in NAMES if name in declared(script, "INCLUDE")]
    assert users or name == "_clock_test"


@pytest.mark.parametrize("name", [*NAMES, *FRAGMENTS])
def test_keys_have_their_declared_names_and_are_never_computed(name: str) -> None:
    for number, line in code(name):
        assert "KEYS" not in line, f"line {number}: a key by its position"
        assert not re.search(r"'tw:|\{\d+\}", line), f"line {number}: a key spelled out"
        called = re.search(r"call\(\s*'(?!INFO')[A-Z]+'\s*,\s*'", line)
        assert called is None, f"line {number}: a key that is a literal"


def test_the_rights_of_the_acl_equal_the_commands_of_the_scripts() -> None:
    others = [name for name in [*NAMES, *FRAGMENTS] if name not in ("check_permissions", "replication_barrier")]
    run = {command for name in others for command in re.findall(r"call\(\s*'([A-Z]+)'", text(name))}
    assert set(re.findall(r"\{ '([A-Z]+)'", text("check_permissions"))) == run | {"MULTI", "EXEC"}


@pytest.mark.parametrize("name", [*NAMES, *FRAGMENTS])
def test_no_script_compares_strings_by_the_locale_of_the_server(name: str) -> None:
    assert not re.search(r"table\.sort|os\.|math\.random", "\n".join(line for _, line in code(name)))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_scripts_of_tests_can_set_the_time(name: str) -> None:
    production, test = scripts.load(name), scripts.load(name, "_clock_test")
    assert "'now'" not in production.source
    assert production.keys == test.keys
    if "_clock" in declared(name, "INCLUDE"):
        assert production.sha != test.sha
        assert "'TIME'" in production.source
        assert "'TIME'" not in test.source


@pytest.mark.parametrize("name", NAMES)
def test_the_scripts_sent_to_the_server_have_no_comments(name: str) -> None:
    lines = scripts.load(name).source.splitlines()
    assert lines[0].startswith("#!lua")
    assert not [line for line in lines[1:] if not line.strip() or line.lstrip().startswith("--")]


def test_a_script_is_loaded_by_the_hash_of_its_source() -> None:
    first, again = scripts.load("dequeue"), scripts.load("dequeue")
    assert first is again
    assert re.fullmatch(r"[0-9a-f]{40}", first.sha)
    assert len({scripts.load(name).sha for name in NAMES}) == len(NAMES)
