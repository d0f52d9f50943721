"""Runs the simulation of the election by lease.

python -m tests.lease_simulation runs COUNT [FIRST]     runs with random faults, by seed
python -m tests.lease_simulation mutants COUNT          in how many of these runs each planted bug is detected
python -m tests.lease_simulation scenarios COUNT        what follows from single faults
"""

import sys
from collections import Counter
from functools import partial
from multiprocessing import Pool
from statistics import median

from tests.lease_simulation import scenarios
from tests.lease_simulation.faults import Result, run_with_random_faults
from tests.lease_simulation.mutants import IN_THE_PRODUCT, IN_THE_SIMULATION, planted
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT

SEEDS_AT_ONCE = 10


def run_mutant(mutant: str, seed: int) -> Result:
    with planted(mutant) as in_simulation:
        return run_with_random_faults(seed, in_simulation)


def show_runs(pool: object, count: int, first: int) -> None:
    results = pool.imap_unordered(run_with_random_faults, range(first, first + count), SEEDS_AT_ONCE)  # type: ignore[attr-defined]
    claims = bad = 0
    for result in results:
        claims += result.claims
        if result.found:
            bad += 1
            print(f"seed {result.seed}: {result.found}", flush=True)
    print(f"{count} runs, {claims} claims: {bad} with a violation")


def show_mutants(pool: object, count: int) -> None:
    for mutant in (*IN_THE_SIMULATION, *IN_THE_PRODUCT):
        results = pool.map(partial(run_mutant, mutant), range(count), SEEDS_AT_ONCE)  # type: ignore[attr-defined]
        kinds = Counter(kind for result in results for kind in result.found)
        print(
            f"{mutant:26} detected in {sum(bool(r.found) for r in results)} of {count} runs: {dict(kinds)}", flush=True
        )


def show_scenarios(pool: object, count: int) -> None:
    ranks = {"4 processes": (EVENT_PROCESS,) * 4, "2 and 2 of last resort": (EVENT_PROCESS,) * 2 + (LAST_RESORT,) * 2}
    for names, kinds in ranks.items():
        for shards in (1, 4, 16):
            for fault in scenarios.FAULTS:
                run = partial(scenarios.run, fault, shards=shards, ranks=kinds)
                outcomes = pool.map(run, range(count))  # type: ignore[attr-defined]
                undriven = sorted(outcome.undriven_ms for outcome in outcomes)
                changes = sorted(outcome.changes for outcome in outcomes)
                calls = sum(outcome.calls_per_s for outcome in outcomes) / count
                found = sum((outcome.found for outcome in outcomes), Counter[str]())
                print(
                    f"{names:22} {shards:2} shards  {fault:20} undriven ms {median(undriven):6.0f} {undriven[-1]:6.0f}"
                    f"  changes {median(changes):4} {changes[-1]:3}  calls/s {calls:5.1f}  {dict(found) or ''}",
                    flush=True,
                )


def main(command: str, count: str, first: str = "0") -> None:
    with Pool() as pool:
        match command:
            case "runs":
                show_runs(pool, int(count), int(first))
            case "mutants":
                show_mutants(pool, int(count))
            case "scenarios":
                show_scenarios(pool, int(count))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
