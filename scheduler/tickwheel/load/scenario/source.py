"""Where a scenario comes from: shipped by its name, a TOML file, or a recording; and what of it a run may change."""

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
    """A scenario as the command line names it. The processes of a run read it each for itself, and plan the same."""

    name: str
    scale: float = 1.0
    speed_up: float | None = None
    seed: int | None = None
    start_s: float | None = None
    length_s: float | None = None
    max_seconds: float | None = None
    max_messages: int | None = None
    workers: int | None = None

    def scenario(self) -> Scenario:
        """Read it. Raises InvalidArgument."""
        scenario = _read(self.name)
        changes: dict[str, Any] = {
            name: value
            for name, value in asdict(self).items()
            if value is not None and name not in ("name", "scale", "workers")
        }
        if self.start_s is not None and self.start_s > _DAY_S and not scenario.recording:
            raise InvalidArgument(f"--start is a time of the day, up to 24h, not {self.start_s / 3600:g}h")
        # How many messages is said of the whole, as the scenario says it.
        scenario = replace(scenario, **changes).scaled(self.scale)
        return scenario if self.workers is None else _with_workers(scenario, self.workers)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def shipped_scenarios() -> dict[str, Traversable]:
    """The scenarios that come with the package, by name."""
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
        f"{name!r} is no scenario: name one of {', '.join(sorted(known))}, a .toml file, or a recording, a .csv file"
    )


def _with_workers(scenario: Scenario, count: int) -> Scenario:
    """So many workers in all, over the groups as the scenario has them."""
    groups = scenario.workers or [WorkerGroup("workers", [queue.name for queue in scenario.queues])]
    if count < len(groups):
        raise InvalidArgument(
            f"{scenario.name} has {len(groups)} groups of workers: give that many or more, not {count}"
        )
    return replace(scenario, workers=with_workers(groups, count))
