"""Errors in the words of the command line. The errors of the client name the arguments and methods of Python."""

import re
from collections.abc import Iterable
from typing import Any

# Methods of the client, and the commands that do the same.
_PHRASES = {"`unblock` the queue": "run `tickwheel queue unblock`"}


def name_options(text: str, parameters: Iterable[Any]) -> str:
    """Return the text of an error with the command's options, such as ``--exclusive-value``, for arguments of Python.

    ``parameters`` are those of the command. Only names with an underscore are replaced: the others are usual words.
    Text in quotation marks stays as it is, because it is a value.
    """
    for phrase, replacement in _PHRASES.items():
        text = text.replace(phrase, replacement)
    for parameter in parameters:
        option = next((name for name in parameter.opts if name.startswith("--")), None)
        if option is not None and "_" in parameter.name:
            text = re.sub(rf"(?<![\w'\"`.-]){re.escape(parameter.name)}(?![\w'\"`])", option, text)
    return text
