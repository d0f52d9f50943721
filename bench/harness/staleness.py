"""Staleness: the rows that were measured with other code than the present code of the product or the measurement."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bench.harness.checkout import Checkout

# The folders with the code that a row measures, by the beginning of its name. All other rows measure the product.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {"timing_wheel": ("wheel",)}
PRODUCT: Final = ("scheduler", "lua", "wheel")
# The versions of the server and of all libraries, which every row depends on.
LOCK: Final = "requirements.lock"


def stale_rows(
    figures: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Iterable[str]], checkout: Checkout
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
        lines += describe_age(name, figures[name], (*folders, *sorted(files)), checkout)
    return lines + [f"{name}: no measurement has this row any more" for name in figures if name not in sources]


def describe_age(name: str, result: Mapping[str, Any], paths: Iterable[str], checkout: Checkout) -> list[str]:
    """Return a line if the present code of the paths is not that of the result, and otherwise no line.

    The code of a result is unknown if its commit was not recorded, if the checkout does not have the commit, or if
    changes that were not committed were measured. The result is then stale.
    """
    measured, commit = f"{name}: measured {result['measured']}", result.get("commit")
    if not commit:
        return [f"{measured}, at a commit that was not recorded"]
    changed = checkout.changed_files(commit, (*paths, LOCK))
    if changed is None:
        return [f"{measured}, at the commit {commit}, which this checkout does not have"]
    since = f"{len(changed)} file{'s' * (len(changed) != 1)} changed since the commit {commit}"
    if result["dirty"]:
        return [f"{measured}, with changes that were not committed; {since}"]
    return [f"{measured}, {since}"] if changed else []
