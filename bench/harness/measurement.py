"""The result of a measurement, and the size of its run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from statistics import median
from typing import Any


@dataclass(slots=True)
class Measurement:
    """One value and its goal, the ``bar`` (None: no goal). ``value`` defaults to the median of ``samples``."""

    name: str
    label: str
    unit: str
    samples: Sequence[float]
    bar: float | None
    at_least: bool = False
    value: float = nan
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isnan(self.value):
            self.value = median(self.samples)

    @property
    def runs(self) -> int:
        return len(self.samples)

    @property
    def passed(self) -> bool | None:
        """Whether the value meets its goal; None without a goal."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.label,
            "value": round(self.value, 4),
            "unit": self.unit,
            "bar": self.bar,
            "bar_is": "at least" if self.at_least else "at most",
            "passed": self.passed,
            "runs": self.runs,
            "samples": [round(sample, 4) for sample in self.samples],
            "details": self.details,
        }


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run: full, or so small that everything runs in seconds."""

    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def runs(self, full: int = 5) -> int:
        return 1 if self.quick else full

    @property
    def warmup_runs(self) -> int:
        """The number of runs that are not counted, before the runs that are."""
        return 0 if self.quick else 1

    def sizes(self, full: Sequence[int], quick: int) -> list[int]:
        return [quick] if self.quick else list(full)
