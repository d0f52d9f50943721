"""`python -m bench`: measure, print a table, and write JSON and plots."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.checkout import Checkout, Origins
from bench.harness.fault_campaigns import write_campaigns
from bench.harness.measurement import Measurement, Scale
from bench.harness.pages import write_pages
from bench.harness.plots import draw
from bench.harness.report import load, save, show
from bench.harness.staleness import describe_age, stale_rows
from bench.peers import __main__ as peers
from bench.registry import MEASUREMENTS, measure, row_sources

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW,ROW", help=f"measure only some of {', '.join(MEASUREMENTS)}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use small sizes, so that each row takes only seconds; the values are not valid",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="folder for bench.json and the plots; default: bench/results, with --quick a temporary folder",
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="measure nothing; list the rows that were measured with other code than the present code, or not measured",
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="measure nothing; write the measured values of all pages again, from the results",
    )
    args = parser.parse_args()
    if args.stale:
        lines = stale_rows(load(args.results or RESULTS)["figures"], row_sources(), Checkout())
        lines += describe_age(peers.RESULTS.name, json.loads(peers.RESULTS.read_text()), peers.SOURCES, Checkout())
        print(*lines, sep="\n")
        return
    if args.table:
        write_pages(load(RESULTS), row_sources())
        peers.write_comparison()
        write_campaigns()
        return
    names = list(MEASUREMENTS) if args.only is None else [name.strip() for name in args.only.split(",")]
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"there is no row {', '.join(unknown)}; the rows are {', '.join(MEASUREMENTS)}")
    # By default, a quick run does not overwrite valid results.
    folder: Path = args.results or (Path(tempfile.mkdtemp(prefix="tickwheel-bench-")) if args.quick else RESULTS)
    with BenchServer() as server:
        about = server.about()
    measurements, results = measure_rows(names, folder, args.quick, about)
    draw(results["figures"], folder)
    if folder == RESULTS:
        write_pages(results, row_sources())
    show(measurements, args.quick)
    print(f"Written to {folder}")
    missed = [measurement.name for measurement in measurements if measurement.passed is False]
    if missed and not args.quick:
        sys.exit(f"these rows missed their goal: {', '.join(missed)}")


def measure_rows(
    names: list[str], folder: Path, quick: bool, about: dict[str, str]
) -> tuple[list[Measurement], dict[str, Any]]:
    """Measure, and save the rows after each function. Return the rows, and all results of the folder.

    Each row keeps the origin of its own measurement.
    """
    measurements: list[Measurement] = []
    figures: dict[str, dict[str, Any]] = {}
    results: dict[str, Any] = {}
    origins = Origins()
    for name in names:
        began = time.perf_counter()
        print(f"{name} ...", end="", flush=True)
        measured = measure(name, Scale(quick))
        origin = origins.record()
        print(f" {time.perf_counter() - began:.0f} s")
        measurements += measured
        figures |= {measurement.name: measurement.as_json() | origin for measurement in measured}
        results = save(folder, figures, quick, about)
    return measurements, results


if __name__ == "__main__":
    main()
