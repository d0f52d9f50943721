"""Staleness: the rows that were measured before the last change of the code that they measure."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
# The folders with the code that a row measures, by the beginning of its name. All other rows measure the product.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {"timing_wheel": ("wheel",)}
_PRODUCT: Final = ("scheduler", "lua", "wheel")

# Returns the number of commits after a time that changed one of the folders.
CountCommits = Callable[[str, tuple[str, ...]], int]


def count_commits(since: str, folders: tuple[str, ...]) -> int:
    """Count the commits of this checkout."""
    command = ["git", "-C", str(ROOT), "rev-list", "--count", f"--since={since}", "HEAD", "--", *folders]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def stale_rows(
    figures: Mapping[str, Mapping[str, Any]], count: CountCommits = count_commits
) -> list[tuple[str, str, int]]:
    """Return name, time of measurement and number of later commits of each stale row."""
    rows = []
    for name, figure in figures.items():
        folders = next((folders for prefix, folders in _FOLDERS.items() if name.startswith(prefix)), _PRODUCT)
        if commits := count(figure["measured"], folders):
            rows.append((name, figure["measured"], commits))
    return rows
