"""Finds the names that an object holds, in any structure that is reachable from it."""

import asyncio
import gc
import logging
import re
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from types import CoroutineType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

# From these, the walk would reach objects of other tests, or of the library.
_BORDERS = (
    type,
    ModuleType,
    FrameType,
    CoroutineType,
    GeneratorType,
    ContextVar,
    logging.Logger,
    asyncio.AbstractEventLoop,
)


def find_names(roots: Iterable[object], pattern: str) -> dict[str, str]:
    """Return the texts that match the pattern in strings and keys, each with the types on the way to one of them."""
    sought = re.compile(pattern)
    found: dict[str, str] = {}
    ways = deque((root, type(root).__name__) for root in roots)
    seen = {id(root): root for root, _ in ways}
    while ways:
        current, way = ways.popleft()
        for item in _referents(current):
            if isinstance(item, str | bytes):
                text = item if isinstance(item, str) else item.decode("latin-1")
                for name in sought.findall(text):
                    found.setdefault(name, way)
            elif id(item) not in seen and not isinstance(item, _BORDERS):
                seen[id(item)] = item
                ways.append((item, f"{way} > {type(item).__name__}"))
    return found


def _referents(value: object) -> list[Any]:
    if isinstance(value, FunctionType):
        # Not its module.
        return [value.__closure__, value.__defaults__]
    if isinstance(value, dict):
        # The collector does not visit keys that are strings.
        return [*list(value), *list(value.values())]
    return gc.get_referents(value)
