"""The table of states: the page and the headers of the scripts agree with the code."""

import re

import pytest

from tests.support.state_table import all_transitions, state_table, table_of_page
from tickwheel.model.state_machine import describe_sources
from tickwheel.storage import scripts

pytestmark = pytest.mark.unit

_NAMES = {"New": None, "gone": None} | {
    name: name.lower() for name in ("Invisible", "Pending", "Running", "Completed", "Cancelled", "Errored")
}
_STATE = re.compile(rf"\b({'|'.join(_NAMES)})\b")


def transitions_of_header(name: str) -> set[tuple[str | None, str, str | None]]:
    """Return each transition of a header: `States -> States`, up to the end of the sentence."""
    lines = (scripts.folder() / f"{name}.lua").read_text().splitlines()[1:]
    end = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    text = " ".join(line.removeprefix("--").strip() for line in lines[:end])
    return {
        (_NAMES[before], name, _NAMES[after])
        for sentence in re.split(r"[.;]", text)
        if " -> " in sentence
        for before in _STATE.findall(sentence.partition(" -> ")[0])
        for after in _STATE.findall(sentence.partition(" -> ")[2])
    }


def test_the_guarantees_page_has_the_table_of_the_code() -> None:
    assert table_of_page() == state_table(), "run `python -m tests.support.state_table`"


def test_the_headers_of_the_scripts_have_the_transitions_of_the_table() -> None:
    assert set().union(*map(transitions_of_header, scripts.names())) == all_transitions()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("cancel", "invisible, pending or running"),
        ("reschedule", "invisible or pending"),
        ("redrive", "errored"),
    ],
)
def test_the_start_states_of_every_call_are_described(script: str, text: str) -> None:
    assert describe_sources(script) == text
