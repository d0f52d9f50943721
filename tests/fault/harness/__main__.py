"""python -m tests.fault.harness: faults for as long as asked, and a table.

Exit code 1 where a run has a violation or is void, or where nothing ran.
"""

import argparse
import logging
import os
import random
import sys
import time
from pathlib import Path

from tests.fault.harness.deployment import RowUnavailable
from tests.fault.harness.plan import campaign
from tests.fault.harness.report import Report
from tests.fault.harness.rows import ROWS, plan
from tests.fault.harness.run import run
from tests.fault.harness.shared import SharedServices

# Of a campaign, so that its last run is over within ten minutes; of a soak, whose length is a multiple of an hour.
_SECONDS, _SOAK_SECONDS = 570, 3_600
_SOAK = "TICKWHEEL_SOAK"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.harness", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=_seconds(), help="begin no run after this long (default 570, or as soak)"
    )
    parser.add_argument("--seed", type=int, help="of the campaign; default: a random one, which is printed")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--results", type=Path, help="append the totals to this file, a line of JSON a campaign")
    parser.add_argument("--replay", metavar="ROW:SEED", help="one run again, as a report names it")
    parser.add_argument("--rate", type=int, help="messages a second, instead of the rows' own")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs")
    given = parser.parse_args()
    names = [name.strip() for name in given.rows.split(",")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; the rows are {', '.join(ROWS)}")
    # That servers are away is what this is about.
    logging.getLogger("tickwheel").setLevel(logging.CRITICAL)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    runs = campaign(seed, names)
    if given.replay:
        row, _, of_row = given.replay.partition(":")
        names, seed = [row], int(of_row)
        runs = iter([(row, seed)])
    report = Report(seed, names, soak=_SOAK in os.environ)
    print(f"seed {seed}, rows {', '.join(names)}", flush=True)
    left_out: set[str] = set()
    until = time.monotonic() + given.seconds
    with SharedServices() as shared:
        for row, of_row in runs:
            if time.monotonic() >= until or left_out >= set(names):
                break
            if row in left_out:
                continue
            try:
                report.add(run(plan(row, of_row, rate=given.rate, soak=_SOAK in os.environ), shared, keep=given.keep))
            except RowUnavailable as reason:
                left_out.add(row)
                report.add_unavailable(row, str(reason))
    report.show()
    if given.results:
        report.append(given.results)
    return 0 if report.passed else 1


def _seconds() -> float:
    soak = os.environ.get(_SOAK)
    return _SOAK_SECONDS * float(soak) if soak else _SECONDS


if __name__ == "__main__":
    sys.exit(main())
