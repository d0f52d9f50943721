"""Decodes JSON and TOML that another program, or a user, may have written: every fault of the text is a ValueError.

The decoders of Python raise RecursionError for values that are nested too deeply.
"""

import json
import tomllib
from collections.abc import Callable
from typing import Any

Pairs = list[tuple[str, Any]]


def decode_json(text: bytes | str, object_pairs_hook: Callable[[Pairs], Any] | None = None) -> Any:
    """Return the value of a JSON text. ``object_pairs_hook`` is that of `json.loads`.

    Raises ValueError if the text is not JSON, or if it is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def decode_toml(text: str) -> dict[str, Any]:
    """Return the document of a TOML text. Raises ValueError if the text is not TOML, or if it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("the TOML is nested too deeply") from error
