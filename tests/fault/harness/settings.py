"""The settings of the programs of a run, passed as one JSON argument."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.fault.harness.load import Load

# A call without an answer after this time is unknown.
CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run. ``started`` is the start of the load, by the clock of the call logs."""

    url: str
    namespace: str
    durability: str
    folder: str
    started: float
    load: Load

    @property
    def call_logs(self) -> Path:
        """The folder of the call logs."""
        return Path(self.folder)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"load": Load(**fields["load"])})
