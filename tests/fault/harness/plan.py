"""The plan of a campaign, made from its seed: the same seed and the same rows give the same plan."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tests.fault.harness.load import Load


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins ``at`` seconds after the start of the load, and lasts ``lasts`` seconds.

    ``kind`` is a key of `faults.KINDS`. ``whom`` selects one of several processes. ``amount`` is the severity, in the
    unit of the kind.
    """

    kind: str
    at: float
    lasts: float = 0.0
    whom: int = 0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run of a row, with its load and its faults. `--replay ROW:SEED` repeats the run."""

    row: str
    seed: int
    load: Load
    faults: tuple[Fault, ...]


# The first row of a campaign. It takes long, and every campaign of ten minutes must include it.
_FIRST = "F21"


def campaign(seed: int, rows: Sequence[str], preferred: Collection[str] = ()) -> Iterator[tuple[str, int]]:
    """Yield the row and the seed of each run: all rows in random order, repeatedly.

    The first row is F21. The ``preferred`` rows follow, which earlier campaigns have not reached.
    """
    chance = random.Random(seed)
    ranks = dict.fromkeys(preferred, 1) | {_FIRST: 0}
    while True:
        order = list(rows)
        chance.shuffle(order)
        for row in sorted(order, key=lambda row: ranks.get(row, 2)):
            yield row, chance.randrange(2**32)
        ranks = {}
