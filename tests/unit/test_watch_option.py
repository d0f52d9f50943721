"""`--watch` repeats the output of a command. On a terminal, each output replaces the one before."""

import sys
from datetime import timedelta

import pytest

from tickwheel.cli.watch_option import repeat

pytestmark = pytest.mark.unit

SOON = timedelta(milliseconds=1)


class Output:
    """Prints a number each time, until Ctrl-C after the second time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt
        print(self.count)


@pytest.mark.parametrize(("terminal", "text"), [(True, "1\n\x1b[2J\x1b[H2\n\x1b[2J\x1b[H"), (False, "1\n2\n")])
def test_the_output_is_repeated_and_replaced_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, text: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    with pytest.raises(KeyboardInterrupt):
        repeat(SOON, Output())
    assert capsys.readouterr().out == text


def test_without_the_option_the_output_is_printed_once() -> None:
    output = Output()
    repeat(None, output)
    assert output.count == 1
