"""Proves that a commit which moves files does nothing else.

    python .ci/check_moves.py COMMIT [COMMIT ...]

For each Python file that a commit moved or changed, the script drops the import statements from the text before and
after, and compares the rest byte for byte. Lua files are compared whole. A line may differ by the path of a moved
module or by the name of a moved Lua script. A new Python file may hold only a docstring, imports, `__all__` and a call
of `main`: it is a package opening or a re-export. The script exits with 1 if a commit changed anything else, and prints
the first line that differs in each file.
"""

import ast
import re
import subprocess
import sys
from pathlib import PurePosixPath

SOURCE_ROOTS = ("scheduler/", "wheel/")
# A module with nothing but these is an opening: what it opens is what it imports.
OPENING = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.If)


def main() -> None:
    problems = [problem for commit in sys.argv[1:] for problem in problems_of(commit)]
    print("\n".join(problems) or f"{len(sys.argv) - 1} commits: nothing but moves, imports, openings and paths")
    sys.exit(1 if problems else 0)


def problems_of(commit: str) -> list[str]:
    """One line for each file in which the commit changed more than imports and paths."""
    # A file whose place an opening takes in the same commit counts as copied, and the opening as a rewrite.
    listing = git("show", "--format=", "--name-status", "-B20%/40%", "-M30", "-C30", commit)
    changes = [line.split("\t") for line in listing.splitlines()]
    moves = {change[1]: change[2] for change in changes if change[0][0] in "RC"}
    problems = []
    for status, *paths in changes:
        before, after = paths[0], paths[-1]
        if after.endswith("__init__.py") or not after.endswith((".py", ".lua")):
            continue
        if status == "A" or status.startswith("M0"):
            if after.endswith(".lua") or not is_opening(git("show", f"{commit}:{after}")):
                problems.append(f"{commit}: {after} is new, and holds more than imports")
            continue
        if status == "D":
            problems.append(f"{commit}: {before} was removed")
            continue
        lines_of = without_imports if after.endswith(".py") else str.splitlines
        old = lines_of(git("show", f"{commit}^:{before}"))
        new = lines_of(git("show", f"{commit}:{after}"))
        if old != new and (difference := first_difference(old, new, moves)):
            problems.append(f"{commit}: {after} changed: {difference}")
    return problems


def is_opening(source: str) -> bool:
    return all(isinstance(node, OPENING) for node in ast.parse(source).body)


def without_imports(source: str) -> list[str]:
    """The lines of a module without its import statements, and without the blank lines around them."""
    lines: list[str | None] = list(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            while first > 0 and not lines[first - 1]:
                first -= 1
            while last < len(lines) and not lines[last]:
                last += 1
            lines[first:last] = [None] * (last - first)
    return [line for line in lines if line is not None]


def with_new_paths(line: str, moves: dict[str, str]) -> str:
    """The line with the moved modules and scripts under their new names.

    A module is dotted as in an import, or the path of a file. A script is a quoted name or a file name, or in a Lua
    comment the plain name of a fragment.
    """
    names = {old: new for old, new in moves.items() if old.endswith(".py")}
    names |= {dotted(old): dotted(new) for old, new in names.items()}
    for old, new in moves.items():
        if old.endswith(".lua"):
            before, after = PurePosixPath(old).stem, PurePosixPath(new).stem
            names |= {f'"{before}"': f'"{after}"', f"{before}.lua": f"{after}.lua"}
            if line.startswith("--") and before.startswith("_"):
                names[before] = after
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?!\w)")
    return pattern.sub(lambda match: names[match[0]], line) if names else line


def dotted(path: str) -> str:
    """The name that an import gives to the module at ``path``."""
    for root in SOURCE_ROOTS:
        path = path.removeprefix(root)
    return ".".join(PurePosixPath(path).with_suffix("").parts)


def first_difference(old: list[str], new: list[str], moves: dict[str, str]) -> str:
    """The first line that differs by more than the paths of moved modules; "" if there is none."""
    for before, after in zip(old, new, strict=False):
        if before != after and with_new_paths(before, moves) != after:
            return f"{before.strip()!r} became {after.strip()!r}"
    return "" if len(old) == len(new) else f"{len(old)} lines became {len(new)}"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
