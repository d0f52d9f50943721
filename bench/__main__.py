"""python -m bench: measure, print a table, write JSON and plots."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Figure, Scale
from bench.harness.plots import draw
from bench.harness.report import between, markdown, save, show
from bench.registry import ROWS

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW,ROW", help=f"measure only these of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="show in seconds that all of it runs; no figure is true")
    parser.add_argument("--results", type=Path, help="folder for bench.json and the plots; default: bench/results")
    given = parser.parse_args()
    names = list(ROWS) if given.only is None else [name.strip() for name in given.only.split(",")]
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {', '.join(unknown)}; the rows are {', '.join(ROWS)}")
    # A quick run never takes the place of true results.
    folder: Path = given.results or (Path(tempfile.mkdtemp(prefix="tickwheel-bench-")) if given.quick else RESULTS)
    figures: list[Figure] = []
    with BenchServer() as server:
        about = server.about()
    for name in names:
        began = time.perf_counter()
        print(f"{name} ...", end="", flush=True)
        figures += ROWS[name](Scale(given.quick))
        print(f" {time.perf_counter() - began:.0f} s")
        results = save(folder, figures, given.quick, about)
    draw(results["figures"], folder)
    if folder == RESULTS:
        between(FIGURES, markdown(results))
    show(figures, given.quick)
    print(f"Written to {folder}")
    missed = [figure.name for figure in figures if figure.passed is False]
    if missed and not given.quick:
        sys.exit(f"missed their goal: {', '.join(missed)}")


if __name__ == "__main__":
    main()
