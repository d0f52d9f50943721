"""What a campaign will do, made from its seed before anything runs: the same seed and rows are the same plan."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.fault.harness.load import Load


@dataclass(frozen=True, slots=True)
class Fault:
    """``kind`` is one of `faults.KINDS`; ``at`` seconds from the start of the load it begins, and ``lasts`` so long.

    ``whom`` chooses among processes of a kind, ``amount`` is how bad it is, in the unit of the kind.
    """

    kind: str
    at: float
    lasts: float = 0.0
    whom: int = 0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run: a row of the table of faults, with its load and its faults. ``seed`` replays it: `--replay ROW:SEED`."""

    row: str
    seed: int
    load: Load
    faults: tuple[Fault, ...]


# A campaign's first: it takes long, and none of ten minutes is to leave it out.
_FIRST = "F21"


def campaign(seed: int, rows: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Row and seed of each run, without end: all rows in turn, in a new order each time, Kafka's first of all."""
    chance = random.Random(seed)
    first = _FIRST
    while True:
        order = list(rows)
        chance.shuffle(order)
        for row in sorted(order, key=lambda row: row != first):
            yield row, chance.randrange(2**32)
        first = ""
