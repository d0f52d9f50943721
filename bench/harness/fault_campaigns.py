"""The table of the fault campaigns on the page of the measurements, made from the results of all campaigns."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench.harness.report import replace_between
from bench.harness.source_files import ROOT

RESULTS: Final = ROOT / "bench" / "results" / "faults.jsonl"
PAGE: Final = ROOT / "docs" / "figures.md"
MARK: Final = "<!-- begin: fault campaigns, made by make faults -->\n"
# The coverage counts over this number of campaigns of one commit, each with another seed.
CAMPAIGNS: Final = 3
# The end of the commit of a checkout with changes.
DIRTY: Final = "-dirty"


def write_campaigns(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the table into the page."""
    replace_between(page, campaigns_table(results), MARK)


def campaigns_table(results: Path) -> str:
    """Return a Markdown table with a line for each campaign and their sums, and the coverage of the latest commit."""
    campaigns = [json.loads(line) for line in results.read_text().splitlines()]
    lines = [
        "| campaign | seed | commit | rows | runs | messages | faults | void faults | violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    totals: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    for campaign in campaigns:
        kind, total = "soak" if campaign.get("soak") else "campaign", campaign["total"]
        rows = f"{len(campaign['rows'])} of {len(_planned(campaign))}" if "not_reached" in campaign else "not recorded"
        about = f"{kind} of {campaign['at'][:10]} | {campaign['seed']} | {campaign.get('commit') or 'not recorded'}"
        lines.append(f"| {about} | {rows} | {_cells(total, total['violations'])} |")
        totals.update({name: total[name] for name in ("runs", "messages", "faults", "void")})
        violations.update(total["violations"])
    soaks = sum(bool(campaign.get("soak")) for campaign in campaigns)
    count = (
        f"all {len(campaigns)}, {soaks} of them soaks" if soaks != 1 else f"all {len(campaigns)}, one of them a soak"
    )
    lines.append(f"| {count} | | | | {_cells(totals, violations)} |")
    return "\n".join([*lines, "", _coverage(campaigns)]) + "\n"


def _planned(campaign: dict[str, Any]) -> set[str]:
    return {*campaign["rows"], *campaign["not_reached"], *campaign["left_out"]}


def _cells(total: dict[str, Any] | Counter[str], violations: dict[str, int]) -> str:
    numbers = " | ".join(f"{total[name]:,}" for name in ("runs", "messages", "faults", "void"))
    return f"{numbers} | {', '.join(f'{count} of {code}' for code, count in sorted(violations.items())) or 'none'}"


def _coverage(campaigns: list[dict[str, Any]]) -> str:
    commit = campaigns[-1].get("commit", "")
    if not commit or commit.endswith(DIRTY):
        return "The code of the latest campaign was not committed, so the coverage of that code is not known."
    latest = [campaign for campaign in campaigns if campaign.get("commit") == commit][-CAMPAIGNS:]
    reached = set[str]().union(*(campaign["rows"] for campaign in latest))
    planned = set[str]().union(*(_planned(campaign) for campaign in latest))
    which = "The latest campaign" if len(latest) == 1 else f"The latest {len(latest)} campaigns"
    return f"{which} of the commit {commit} reached {len(reached)} of {len(planned)} planned rows."
