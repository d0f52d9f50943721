"""Facts that users and operators rely on. Tests compare the recorded facts with the code.

    python -m tests.frozen.record            records everything again
    python -m tests.frozen.record scripts    records one topic again

`recorded/` has one file for each topic. A removed or changed entry breaks users or operators: record a topic again
only if the change is intended, in the commit that makes the change, with a line in CHANGELOG.md. The pickles of
`pickles.json` are never recorded again, because older programs have written them.

A function whose docstring contains "Follows" depends on an internal name. Adapt the function if the name changes.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.frozen import (
    command_json,
    command_line,
    config_files,
    doors,
    kafka,
    log_events,
    metrics,
    redis_names,
    refusals,
)

FOLDER: Final = Path(__file__).parent / "recorded"
Collect = Callable[[], Any]
# These need only the code.
PURE: Final[dict[str, Collect]] = {
    "acl": redis_names.acl,
    "cli": command_line.commands,
    "config_files": config_files.keys,
    "doors": lambda: doors.surface(recorded_names()),
    "environment": log_events.environment,
    "exit_codes": command_line.exit_codes,
    "file_loggers": log_events.file_loggers,
    "identities": lambda: doors.identities(recorded_names()),
    "kafka": kafka.schema,
    "log_events": log_events.events,
    "log_lines": log_events.lines,
    "loggers": log_events.loggers,
    "metrics": metrics.families,
    "programs": command_line.programs,
    "pytest_plugin": doors.fixtures,
    "redis_names": redis_names.names,
    "refusals": refusals.reasons,
    "scripts": redis_names.script_shas,
}
# These need servers, and take seconds.
SERVED: Final[dict[str, Collect]] = {"cli_json": command_json.answers}
REMEDY: Final = (
    "If the change is intended: run `python -m tests.frozen.record`, check the diff of tests/frozen/recorded, and"
    " commit it with the change and a line in CHANGELOG.md."
)


def recorded(topic: str) -> Any:
    """Return the recorded value of a topic."""
    return json.loads((FOLDER / f"{topic}.json").read_text())


def recorded_names() -> dict[str, set[str]]:
    """Return the recorded names of each door. There are none before the first recording."""
    if not (FOLDER / "doors.json").exists():
        return {}
    return {door: set(names) for door, names in recorded("doors").items()}


def as_json(value: Any) -> Any:
    """Return the value as JSON reads it back."""
    return json.loads(json.dumps(value))


def differences(was: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each entry that was removed, changed or added. The line names the entry."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            where = f"{path} / {key}" if path else key
            if key not in now:
                yield f"gone: {where}: {_formatted(was[key])}"
            elif key not in was:
                yield f"new: {where}: {_formatted(now[key])}"
            else:
                yield from differences(was[key], now[key], where)
    elif isinstance(was, list) and isinstance(now, list) and was != now:
        gone, new = [entry for entry in was if entry not in now], [entry for entry in now if entry not in was]
        yield from (f"gone: {path}: {_formatted(entry)}" for entry in gone)
        yield from (f"new: {path}: {_formatted(entry)}" for entry in new)
        if not gone and not new:
            yield f"changed: {path}: in another order, or another number of times: {_formatted(now)}"
    elif was != now:
        yield f"changed: {path}: {_formatted(was)} -> {_formatted(now)}"


def _formatted(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def main() -> None:
    """Record the topics that are named, or all."""
    topics = PURE | SERVED
    chosen = sys.argv[1:] or sorted(topics)
    unknown = sorted(set(chosen) - set(topics))
    if unknown:
        sys.exit(f"no such topic: {', '.join(unknown)}; there are {', '.join(sorted(topics))}")
    FOLDER.mkdir(exist_ok=True)
    for topic in chosen:
        text = json.dumps(topics[topic](), indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{topic}.json").write_text(f"{text}\n")
        print(f"recorded {topic}")


if __name__ == "__main__":
    main()
