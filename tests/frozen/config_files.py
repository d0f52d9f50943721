"""The keys of files that users write (tokens, scenarios, recordings, JSON lines), and of settings in Redis."""

import csv
import io
import re
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

_WHOLE_SCENARIO: Final = """
about = "a scenario with every key"
seed = 1
start = "0s"
length = "10s"
drain = "1s"
speed_up = 1.0
warm_up = "0s"
[producers]
batch = 1
linger = "0s"
[bounds]
seconds = "10s"
messages = 5
[[queue]]
name = "jobs"
arrivals = 1
run = { lognormal = { median = "1s", sigma = 1.0 } }
delay = { mix = [[1, { uniform = ["1s", "2s"] }], [1, { list = ["1s"] }], [1, { exponential = "1s" }]] }
exclusive = { key = "project", values = 3, skew = 1.0 }
bursts = { every = "10s", length = "1s", rate = 2 }
polls = { per_second = 1.0, batch = 1, together = 1 }
cancel = { share = 0.1, after = "1s" }
[queue.metadata]
gpu = { a100 = 1, h100 = 2 }
user = { values = 3, skew = 0.5 }
[[queue.urgency]]
share = 1.0
offset = "-1s"
[[workers]]
queues = ["jobs"]
where = { gpu = "a100" }
"""


def keys() -> dict[str, Any]:
    """Return the keys of each kind of file."""
    return {
        "tokens": token_fields(),
        "scenario": scenario_keys(),
        "scenario, distributions": distributions(),
        "scenario, a worker's selectors": selectors(),
        "scenarios by name": scenario_names(),
        "recording": recording_columns(),
        "JSON lines": line_fields(),
        "settings of a queue": queue_settings(),
    }


def token_fields() -> list[str]:
    """Return the keys of a token. Follows `tickwheel.service.token_file`."""
    from tickwheel.service import token_file

    return sorted(
        [f"[[token]] {name}" for name in token_file._FIELDS - {"grant"}]
        + [f"[[token.grant]] {name}" for name in token_file._GRANT_FIELDS]
    )


def scenario_keys() -> list[str]:
    """Return the keys that the reader requests from a scenario with every key. `[]` is an array of tables.

    Follows `tickwheel.load.scenario.scenario_file.read`, which requests every key through `TomlTable.take`.
    """
    from tickwheel.load.scenario import scenario_file
    from tickwheel.load.scenario.toml_fields import TomlTable

    requested: set[str] = set()
    take = TomlTable.take

    def noted(table: TomlTable, name: str, *default: Any) -> Any:
        where = table.path(name).partition(": ")[2]
        requested.add(re.sub(r"\[\d+\]", "[]", where))
        return take(table, name, *default)

    with patch.object(TomlTable, "take", noted), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.toml"
        path.write_text(_WHOLE_SCENARIO)
        scenario_file.read(path)
    # The reader takes `recording` only if the scenario has this key.
    return sorted(requested | {"recording"})


def distributions() -> list[str]:
    """Return the names of the distributions. Follows `tickwheel.load.scenario.distributions.KINDS`."""
    from tickwheel.load.scenario.distributions import KINDS

    return sorted(KINDS)


def selectors() -> list[str]:
    """Return the names of the selectors, which `--selector` accepts as well."""
    from tickwheel.worker.selectors import SELECTORS

    return sorted(SELECTORS)


def scenario_names() -> list[str]:
    """Return the scenarios that `tickwheel load` accepts by name. Follows the folder `load/scenarios`."""
    from importlib.resources import files

    folder = files("tickwheel.load") / "scenarios"
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recording_columns() -> list[str]:
    """Return the columns of a recording. Follows `tickwheel.load.scenario.recording.COLUMNS`."""
    from tickwheel.load.scenario.recording import COLUMNS

    return next(csv.reader(io.StringIO(",".join(COLUMNS))))


def line_fields() -> list[str]:
    """Return the keys of a JSON line. Follows `tickwheel.cli.json_lines.FIELDS`."""
    from tickwheel.cli.json_lines import FIELDS

    return sorted(FIELDS)


def queue_settings() -> dict[str, Any]:
    """Return the settings of a queue as Redis stores them, in JSON. Follows `QueueConfig.settings`."""
    from tickwheel.model.queue_config import QueueConfig

    return QueueConfig().settings()
