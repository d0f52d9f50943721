"""The source of a scenario (a scenario of the package, a TOML file or a recording), and the changes for one run."""

from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario import recording, scenario_file
from tickwheel.load.scenario.scenario import Scenario, WorkerGroup, with_workers

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario as named on the command line. Every process of a run reads it, and plans the same arrivals."""

    name: str
    scale: float = 1.0
    speed_up: float | None = None
    seed: int | None = None
    start_s: float | None = None
    length_s: float | None = None
    max_seconds: float | None = None
    max_messages: int | None = None
    workers: int | None = None

    def full(self) -> "Source":
        """Return the source with the full load. If the run was scaled down, its workers are scaled up, too."""
        scale = max(1.0, self.scale)
        return replace(self, scale=scale, workers=self.workers and round(self.workers * scale / self.scale))

    def scenario(self) -> Scenario:
        """Read the scenario. Raises InvalidArgument."""
        scenario = _read(self.name)
        changes: dict[str, Any] = {
            name: value
            for name, value in asdict(self).items()
            if value is not None and name not in ("name", "scale", "workers")
        }
        if self.start_s is not None and self.start_s > _DAY_S and not scenario.recording:
            raise InvalidArgument(f"--start is a time of the day, at most 24h, not {self.start_s / 3600:g}h")
        # The maximum number of messages is for the full scenario, as in a file, so it is set before scaling.
        scenario = replace(scenario, **changes).scaled(self.scale)
        return scenario if self.workers is None else _with_workers(scenario, self.workers)


def shipped_scenarios() -> dict[str, Traversable]:
    """Return the scenarios of the package, by name."""
    folder = files("tickwheel.load") / "scenarios"
    return {Path(entry.name).stem: entry for entry in folder.iterdir() if entry.name.endswith(".toml")}


def _read(name: str) -> Scenario:
    if name in (known := shipped_scenarios()):
        return scenario_file.read(known[name])
    path = Path(name)
    if path.suffix == ".csv":
        return recording.read_scenario(path)
    if path.suffix == ".toml":
        return scenario_file.read(path)
    raise InvalidArgument(
        f"unknown scenario {name!r}: use {', '.join(sorted(known))}, a .toml file, or a recording as a .csv file"
    )


def _with_workers(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with ``count`` workers, distributed over its groups."""
    groups = scenario.workers or [WorkerGroup("workers", [queue.name for queue in scenario.queues])]
    if count < len(groups):
        raise InvalidArgument(
            f"{scenario.name} has {len(groups)} groups of workers: use at least one worker for each, not {count}"
        )
    return replace(scenario, workers=with_workers(groups, count))
