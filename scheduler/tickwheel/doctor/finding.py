"""The result of a health check."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    verdict: Verdict
    text: str
