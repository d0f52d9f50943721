"""Staleness: the rows that were measured before the last change of the product, or of the code that measures them."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bench.harness.source_files import ROOT

# The folders with the code that a row measures, by the beginning of its name. All other rows measure the product.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {"timing_wheel": ("wheel",)}
PRODUCT: Final = ("scheduler", "lua", "wheel")

# Returns the number of commits after a time that changed one of the paths.
CountCommits = Callable[[str, tuple[str, ...]], int]


def count_commits(since: str, paths: tuple[str, ...]) -> int:
    """Count the commits of this checkout."""
    command = ["git", "-C", str(ROOT), "rev-list", "--count", f"--since={since}", "HEAD", "--", *paths]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def stale_rows(
    figures: Mapping[str, Mapping[str, Any]],
    sources: Mapping[str, Iterable[str]],
    count: CountCommits = count_commits,
) -> list[str]:
    """Return a line for each stale row, for each row without a result, and for each result that has no row any more.

    ``sources`` has all rows, with the files that measure them.
    """
    lines = []
    for name, files in sources.items():
        if name not in figures:
            lines.append(f"{name}: not measured")
            continue
        folders = next((folders for prefix, folders in _FOLDERS.items() if name.startswith(prefix)), PRODUCT)
        lines += describe_age(name, figures[name]["measured"], (*folders, *sorted(files)), count)
    return lines + [f"{name}: no measurement has this row any more" for name in figures if name not in sources]


def describe_age(name: str, measured: str, paths: tuple[str, ...], count: CountCommits = count_commits) -> list[str]:
    """Return a line if the paths were changed after the measurement, and otherwise no line."""
    commits = count(measured, paths)
    return [f"{name}: measured {measured}, {commits} commits before the present code"] if commits else []
