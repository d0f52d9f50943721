"""Coverage: the rows that the latest campaigns of a commit have reached. One campaign has no time for all rows."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.harness.fault_campaigns import CAMPAIGNS, DIRTY

# The share of the rows that these campaigns must reach.
SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Coverage:
    """The planned rows, and the rows that each campaign of the commit has reached, the latest campaign last."""

    names: Sequence[str]
    campaigns: tuple[frozenset[str], ...] = ()

    @classmethod
    def read(cls, names: Sequence[str], results: Path | None, commit: str) -> "Coverage":
        """Return the coverage that the file of results records for this commit.

        No earlier campaign counts for changed code: two checkouts with changes of a commit may have different code.
        """
        if results is None or not results.exists() or commit.endswith(DIRTY):
            return cls(names)
        lines = map(json.loads, results.read_text().splitlines())
        return cls(names, tuple(frozenset(line["rows"]) for line in lines if line.get("commit") == commit))

    def with_campaign(self, rows: Iterable[str]) -> "Coverage":
        """Return the coverage after another campaign, which has reached these rows."""
        return Coverage(self.names, (*self.campaigns, frozenset(rows)))

    def not_reached(self, campaigns: int = CAMPAIGNS) -> list[str]:
        """Return the planned rows that none of the latest ``campaigns`` campaigns has reached."""
        reached = frozenset[str]().union(*self.campaigns[-campaigns:])
        return [name for name in self.names if name not in reached]

    @property
    def next_rows(self) -> list[str]:
        """The rows that the next campaign must reach, so that the latest campaigns reach all rows."""
        return self.not_reached(CAMPAIGNS - 1)

    @property
    def passed(self) -> bool:
        """Whether enough rows are reached. If there are fewer campaigns, the coverage is not decided yet."""
        reached = len(self.names) - len(self.not_reached())
        return len(self.campaigns) < CAMPAIGNS or reached >= SHARE * len(self.names)

    def describe(self) -> str:
        """Return a line with the coverage, and the names of the rows that are not reached."""
        count, missing = min(len(self.campaigns), CAMPAIGNS), self.not_reached()
        text = (
            f"the last {count} of {CAMPAIGNS} campaigns of this commit reached {len(self.names) - len(missing)} of"
            f" {len(self.names)} rows"
        )
        if count < CAMPAIGNS:
            text += f" (after {CAMPAIGNS - count} more, {SHARE:.0%} are required)"
        elif not self.passed:
            text += f", and {SHARE:.0%} are required"
        return f"{text}; not reached: {', '.join(missing) or 'none'}"
