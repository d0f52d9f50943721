"""Finds the Lua scripts, composes each script from its fragments, and binds scripts to keys by name.

A script in `lua/` begins with `#!lua`, then declares in comments its keys and its fragments:

    -- KEYS: clock messages inbox       the script's local `clock` is KEYS[1], and so on
    -- KEYS: slots...                   the last name may stand for all further keys (a table in Lua)
    -- KEYS: messages call_digest?      the last key may be missing (nil in Lua)
    -- INCLUDE: _clock _record          the fragments `lua/_clock.lua` …, in this order, each once

Neither the scripts nor their callers refer to a key by its position.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

_DECLARATION: Final = re.compile(r"^-- (KEYS|INCLUDE): +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One composed script. ``keys`` are the names of the keys that every call has, in order.

    ``rest`` names the list of further keys, if any, and ``optional`` a last key that only some calls have. ``sha`` is
    the SHA-1 of ``source``, with which `EVALSHA` calls the script.
    """

    name: str
    keys: tuple[str, ...]
    rest: str | None
    optional: str | None
    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script on one shard: pure data, which an executor sends."""

    script: Script
    keys: Sequence[str]
    args: Sequence[bytes | int | str]


def folder() -> Traversable:
    """Return the folder of the scripts: `lua` in the installed package, or at the top of a checkout."""
    package = files("tickwheel")
    installed = package / "lua"
    return installed if installed.is_dir() else Path(str(package)).parents[1] / "lua"


def names() -> list[str]:
    """Return the names of all scripts, without the fragments."""
    file_names = (entry.name for entry in folder().iterdir())
    return sorted(name[:-4] for name in file_names if name.endswith(".lua") and not name.startswith("_"))


@lru_cache
def load(name: str, clock: str = "_clock") -> Script:
    """Return the composed script. ``clock`` is the fragment that reads the time; only tests pass another fragment."""
    text = (folder() / f"{name}.lua").read_text()
    shebang, _, body = text.partition("\n")
    declared: dict[str, list[str]] = {"KEYS": [], "INCLUDE": []}
    for kind, words in _DECLARATION.findall(body):
        declared[kind] += words.split()
    keys = declared["KEYS"]
    rest = keys.pop()[:-3] if keys and keys[-1].endswith("...") else None
    optional = keys.pop()[:-1] if keys and keys[-1].endswith("?") else None
    variables = [*keys, *filter(None, [optional])]
    parts = [f"local {', '.join(variables)} = {', '.join(f'KEYS[{n}]' for n in range(1, len(variables) + 1))}"]
    if rest:
        parts.append(f"local {rest} = {{unpack(KEYS, {len(keys) + 1})}}")
    for fragment in declared["INCLUDE"]:
        chosen = clock if fragment == "_clock" else fragment
        parts.append((folder() / f"{chosen}.lua").read_text())
    source = "\n".join([shebang, *(_strip_comments(part) for part in [*parts, body])])
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, tuple(keys), rest, optional, source, sha)


def bind(
    script: Script,
    keys: Mapping[str, str],
    args: Sequence[bytes | int | str],
    rest: Sequence[str] = (),
) -> Call:
    """Return a call of the script. ``keys`` maps each declared name to its key; ``rest`` are the further keys."""
    return Call(script, [*(keys[name] for name in script.keys), *rest], args)


def _strip_comments(text: str) -> str:
    """Return the code without whole-line comments and blank lines: the text that the server stores and hashes."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))
