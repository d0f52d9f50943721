"""The report of a campaign: a line for each run as it ends, a table of the rows, and a line of JSON for the results."""

import json
import platform
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.harness.checkout import WRITTEN, Checkout
from bench.harness.fault_campaigns import DIRTY
from tests.fault.harness.checker import summary
from tests.fault.harness.rows import ROWS
from tests.fault.harness.run import Outcome

_CHECKOUT: Final = Path(__file__).resolve().parents[3]
_SHOWN = 10


@dataclass(slots=True)
class Report:
    """All outcomes of a campaign or a soak. ``names`` are the planned rows."""

    seed: int
    names: list[str]
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    soak: bool = False

    @property
    def passed(self) -> bool:
        """Whether at least one run took place, no run has a violation or is void, and a soak has reached all rows.

        A soak has enough time for all rows. The rows that cannot run on this machine do not count.
        """
        failed = any(outcome.violations or outcome.void for outcome in self.outcomes)
        return bool(self.outcomes) and not failed and not (self.soak and self.not_reached)

    @property
    def not_reached(self) -> list[str]:
        """The rows that did not run in the time of the campaign."""
        reached = {outcome.plan.row for outcome in self.outcomes} | set(self.left_out)
        return [name for name in self.names if name not in reached]

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a run, and print it."""
        self.outcomes.append(outcome)
        late = outcome.lateness_ms.get("max", 0)
        verdict = f"{len(outcome.violations)} VIOLATIONS" if outcome.violations else "no violation"
        print(
            f"{outcome.plan.row}:{outcome.plan.seed} {outcome.seconds:.0f} s, {outcome.messages} messages,"
            f" recovered in {outcome.recoveries_s or '-'} s, at most {late} ms late, {verdict}"
            f" [{'; '.join(outcome.marks)}]",
            flush=True,
        )
        for violation in outcome.violations[:_SHOWN]:
            print(f"  {violation.invariant}: {violation.text}", flush=True)
        for text in outcome.void:
            print(f"  void, because the fault left no mark: {text}", flush=True)

    def add_unavailable(self, row: str, reason: str) -> None:
        """Add a row that cannot run on this machine, and print the reason."""
        self.left_out[row] = reason
        print(f"{row} is left out: {reason}", flush=True)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the totals of each row that ran."""
        by_row: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            by_row[outcome.plan.row].append(outcome)
        return {name: _totals(by_row[name]) for name in ROWS if name in by_row}

    def show(self) -> None:
        """Print the table of the rows."""
        table = Table(title=f"Faults, seed {self.seed}", title_justify="left")
        for name in ("row", "runs", "messages", "faults", "void", "recovery p50", "max", "latest", "violations"):
            table.add_column(name, justify="left" if name == "row" else "right")
        rows = self.rows()
        for name, totals in rows.items():
            table.add_row(f"{name} {ROWS[name].title}", *_cells(totals))
        table.add_section()
        table.add_row("all", *_cells(_totals(self.outcomes)))
        Console(width=140).print(table)
        for name, reason in self.left_out.items():
            print(f"{name} was left out: {reason}", flush=True)
        if self.not_reached:
            rule = ", and a soak must reach all rows" if self.soak else ""
            print(f"not reached in the time{rule}: {', '.join(self.not_reached)}", flush=True)

    def append(self, results: Path) -> None:
        """Append the campaign to the file of results."""
        results.parent.mkdir(parents=True, exist_ok=True)
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": self.seed,
            "soak": self.soak,
            "commit": current_commit(results),
            "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "total": _totals(self.outcomes),
            "rows": self.rows(),
            "runs": [f"{outcome.plan.row}:{outcome.plan.seed}" for outcome in self.outcomes],
            "left_out": self.left_out,
            "not_reached": self.not_reached,
        }
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")


def current_commit(results: Path | None = None, checkout: Path = _CHECKOUT) -> str:
    """Return the commit of the code that runs, with the end `DIRTY` if the code has changes; "" outside a checkout.

    Campaigns and benchmarks themselves change ``results`` and the pages, so these changes do not count. A new file
    counts, unless git ignores it.
    """
    written = list(WRITTEN)
    if results is not None and results.resolve().is_relative_to(checkout):
        written.append(str(results.resolve().relative_to(checkout)))
    command = ["git", "-C", str(checkout), "describe", "--always"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    return commit + DIRTY if commit and Checkout(checkout).is_dirty(written) else commit


def _totals(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the totals of these outcomes. Messages, faults and times of void runs do not count."""
    proving = [outcome for outcome in outcomes if not outcome.void]
    recoveries = [recovery for outcome in proving for recovery in outcome.recoveries_s]
    return {
        "runs": len(outcomes),
        "messages": sum(outcome.messages for outcome in proving),
        "faults": sum(outcome.faults for outcome in proving),
        "void": sum(len(outcome.void) for outcome in outcomes),
        "recovery_p50_s": median(recoveries) if recoveries else None,
        "recovery_max_s": max(recoveries, default=None),
        "lateness_max_ms": max((outcome.lateness_ms.get("max", 0) for outcome in proving), default=0),
        "violations": summary([violation for outcome in outcomes for violation in outcome.violations]),
    }


def _cells(totals: dict[str, Any]) -> list[str]:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f} s"

    return [
        *(f"{totals[name]:,}" for name in ("runs", "messages", "faults", "void")),
        seconds(totals["recovery_p50_s"]),
        seconds(totals["recovery_max_s"]),
        f"{totals['lateness_max_ms']:,} ms",
        str(sum(totals["violations"].values())),
    ]
