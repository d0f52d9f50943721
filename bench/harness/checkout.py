"""The code that a result belongs to: the commit of the checkout, and the files that differ from the commit."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.harness.source_files import ROOT

# The files that measurements and fault campaigns write themselves.
WRITTEN: Final = ("bench/results", "docs", "README.md")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with a git repository. Outside a repository, there is no commit."""

    root: Path = ROOT

    def commit(self) -> str:
        """Return the commit that is checked out; "" if there is none."""
        return self._git("rev-parse", "--short=12", "--verify", "--quiet", "HEAD").strip()

    def is_dirty(self, written: Iterable[str] = WRITTEN) -> bool:
        """Return whether a file outside the paths ``written`` is changed or new. A file that git ignores is not new."""
        return self._git("status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in written)) != ""

    def changed_files(self, commit: str, paths: Iterable[str]) -> set[str] | None:
        """Return the files below the paths that differ from the commit; None if the checkout does not have the commit.

        The comparison includes changes that are not committed, and new files.
        """
        known = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        if not known:
            return None
        changed = self._git("diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", known.strip(), "--", *paths)
        new = self._git("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
        return {file for file in (changed + new).split("\0") if file}

    def _git(self, *arguments: str) -> str:
        """Return the output of a git command; "" if the command fails."""
        command = ["git", "-C", str(self.root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return done.stdout if done.returncode == 0 else ""


class Origins:
    """Records the origin of results: their time, and their code, which is that of the checkout at the start."""

    def __init__(self, checkout: Checkout | None = None) -> None:
        self._checkout = checkout or Checkout()
        self._commit, self._dirty = self._checkout.commit(), self._checkout.is_dirty()

    def record(self) -> dict[str, Any]:
        """Return the origin of a result that has just been measured.

        If another commit was checked out since the start of the program, the code of the result is not known. The
        result then counts as dirty.
        """
        same = self._checkout.commit() == self._commit
        return {
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": self._commit,
            "dirty": self._dirty or not same or self._checkout.is_dirty(),
        }
