"""The table of errors in docs/errors.md equals the conversion of exceptions to statuses, and the exit codes."""

from pathlib import Path

import grpc
import pytest

from tickwheel import errors
from tickwheel.client.exit_codes import exit_code_of
from tickwheel.errors import TickwheelError
from tickwheel.rpc.status import error_to_status, reason

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errors.md").read_text()
CODES = {code.value[0]: code.name for code in grpc.StatusCode}
# The service never sends these.
LOCAL = (errors.Fenced, errors.NoResult, errors.ResultExpired)
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TickwheelError) and kind not in LOCAL
]


def rows() -> list[list[str]]:
    """Return the cells of each row of the table of all errors."""
    lines = [line for line in PAGE.partition("## All errors")[2].partition("\n## ")[0].splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_has_each_exception_once_with_its_code_its_reason_and_its_exit_code() -> None:
    expected = []
    for kind in KINDS:
        error = kind("a text")
        code = CODES[error_to_status(error).code]
        expected.append([f"`{code}`", f"`{reason(kind)}`", f"`{kind.__name__}`", str(int(exit_code_of(error)))])
    assert sorted(row[:4] for row in rows()) == sorted(expected)


def test_every_row_of_the_table_states_the_cause_and_the_remedy() -> None:
    assert [row for row in rows() if len(row) != 6 or not all(row)] == []


def test_the_page_names_the_exceptions_that_the_service_never_sends() -> None:
    names = ["EmbeddedServerError", *(kind.__name__ for kind in LOCAL)]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("name", ["proto/tickwheel/v1/message_service.proto", "docs/guide.md"])
def test_the_protos_and_the_guide_refer_to_the_page(name: str) -> None:
    assert "errors.md" in (ROOT / name).read_text()
