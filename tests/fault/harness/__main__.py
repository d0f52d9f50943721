"""`python -m tests.fault.harness`: run faults for a given time, and print a table.

The exit code is 1 if a run has a violation or is void, if no row ran, if a soak did not reach a row that can run on
this machine, or if the last three campaigns of this commit reached less than 90 % of the rows. A campaign begins with
the rows that the campaigns before it did not reach.
"""

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.harness.fault_campaigns import RESULTS, write_campaigns
from tests.fault.harness.coverage import Coverage
from tests.fault.harness.deployment import RowUnavailable
from tests.fault.harness.plan import campaign
from tests.fault.harness.report import Report, current_commit
from tests.fault.harness.rows import ROWS, plan
from tests.fault.harness.run import run
from tests.fault.harness.shared_services import SharedServices

# A campaign starts no run after 570 s, so that it ends within ten minutes. The length of a soak is given in hours.
_SECONDS, _SOAK_SECONDS = 570, 3_600
_SOAK = "TICKWHEEL_SOAK"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.harness", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=_seconds(),
        help="start no run after this time (default 570, or the time of a soak)",
    )
    parser.add_argument("--seed", type=int, help="seed of the first campaign; default: a random seed")
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="number of campaigns, each with another seed and for --seconds (default 1)",
    )
    parser.add_argument("--rows", default=",".join(ROWS), help=f"rows of {', '.join(ROWS)}; default: all")
    parser.add_argument(
        "--results", type=Path, help="append the totals of the campaign to this file, as a line of JSON"
    )
    parser.add_argument("--replay", metavar="ROW:SEED", help="repeat one run of a report")
    parser.add_argument("--rate", type=int, help="messages a second, instead of the rates of the rows")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs")
    args = parser.parse_args()
    names = [name.strip() for name in args.rows.split(",")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; the rows are {', '.join(ROWS)}")
    # Errors of unreachable servers are expected.
    logging.getLogger("tickwheel").setLevel(logging.CRITICAL)
    if args.replay:
        row, _, row_seed = args.replay.partition(":")
        return 0 if _run_campaign(args, [row], int(row_seed), iter([(row, int(row_seed))])).passed else 1
    coverage, passed = Coverage.read(names, args.results, current_commit(args.results)), True
    for n in range(args.seeds):
        seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed + n
        report = _run_campaign(args, names, seed, campaign(seed, names, coverage.next_rows))
        coverage = coverage.with_campaign(report.rows())
        passed = passed and report.passed
        print(coverage.describe(), flush=True)
    return 0 if passed and coverage.passed else 1


def _run_campaign(args: argparse.Namespace, names: list[str], seed: int, runs: Iterator[tuple[str, int]]) -> Report:
    soak = bool(os.environ.get(_SOAK))
    report = Report(seed, names, soak=soak)
    print(f"seed {seed}, rows {', '.join(names)}", flush=True)
    left_out: set[str] = set()
    until = time.monotonic() + args.seconds
    with SharedServices() as shared:
        for row, row_seed in runs:
            if time.monotonic() >= until or left_out >= set(names):
                break
            if row in left_out:
                continue
            try:
                report.add(run(plan(row, row_seed, rate=args.rate, soak=soak), shared, keep=args.keep))
            except RowUnavailable as reason:
                left_out.add(row)
                report.add_unavailable(row, str(reason))
    report.show()
    if args.results:
        report.append(args.results)
        if args.results.resolve() == RESULTS:
            write_campaigns()
    return report


def _seconds() -> float:
    soak = os.environ.get(_SOAK)
    return _SOAK_SECONDS * float(soak) if soak else _SECONDS


if __name__ == "__main__":
    sys.exit(main())
