"""`make install` prints its progress, and `make demo` ends with commands to try next."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

REPOSITORY = Path(__file__).parents[2]
# A Python whose pip waits, in place of a slow network, until the file `seen` exists.
PYTHON = """#!/bin/sh
case "$*" in
    "-m venv --clear .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    *requirements.lock)
        until test -e seen; do sleep 0.05; done
        head -c 3670016 /dev/zero >"$TMPDIR/package.whl"
        until test -e seen-download; do sleep 0.05; done
        test ! -e fails ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((REPOSITORY / name).read_bytes())
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def install(clone: Path) -> tuple[int, list[str]]:
    """Run `make install` until it ends. The stub of pip ends when a line of progress has reported its download."""
    command = ("make", "--no-print-directory", f"PYTHON={clone / 'python'}", "PROGRESS_S=0.1", "install")
    lines = []
    with subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, text=True) as make:
        assert make.stdout is not None
        for line in make.stdout:
            lines.append(line)
            if "packages are installed" in line:
                (clone / "seen").touch()
            if "3.5 MB" in line:
                (clone / "seen-download").touch()
    return make.returncode, lines


@pytest.mark.timeout(60)
def test_an_install_prints_a_line_for_each_step_and_lines_while_pip_works(clone: Path) -> None:
    code, lines = install(clone)
    assert code == 0
    steps = [line.split()[0] for line in lines if not line.startswith("  ")]
    assert steps == ["Creating", "Installing", "Installing"]
    progress = [line for line in lines if line.startswith("  ")]
    assert re.match(r"  \d\d:\d\d:\d\d: 0\.\d MB are downloaded, 0 packages are installed$", progress[0])
    assert progress[-1].endswith(": 3.5 MB are downloaded, 0 packages are installed\n")
    assert not (clone / ".venv/downloads").exists()
    assert (clone / ".venv/.installed").exists()


@pytest.mark.timeout(60)
def test_a_failed_install_fails_make(clone: Path) -> None:
    (clone / "fails").touch()
    code, _ = install(clone)
    assert code != 0
    assert not (clone / ".venv/.installed").exists()


def test_the_demo_ends_with_three_commands_that_exist() -> None:
    recipe = subprocess.run(
        ("make", "--dry-run", "--old-file=.venv/.installed", "demo"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    lines = [line.rstrip("\\") for line in recipe.splitlines() if re.match(r"\s*[\"']  \.venv", line)]
    hints = [shlex.split(line)[0].strip() for line in lines]
    assert len(hints) == 3
    for command in (command.strip() for hint in hints for command in hint.split(";")):
        program, first, *_ = shlex.split(command)
        if program == ".venv/bin/python":
            assert (REPOSITORY / first).exists()
        else:
            assert program == ".venv/bin/tickwheel"
            subprocess.run(
                (sys.executable, "-m", "tickwheel", first, "--help"), check=True, timeout=60, stdout=subprocess.DEVNULL
            )
