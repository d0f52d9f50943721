"""What every program of a run is told: one JSON argument."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.fault.harness.load import Load

# A call that has no answer after this long is unknown.
CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """``started`` is the moment, by the history's clock, that all times of the load count from."""

    url: str
    namespace: str
    durability: str
    folder: str
    started: float
    load: Load

    @property
    def history(self) -> Path:
        """Where the histories are."""
        return Path(self.folder)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        found: dict[str, Any] = json.loads(text)
        return cls(**found | {"load": Load(**found["load"])})
