"""The keys that commands print with ``--json``, recorded by running each command against a real server.

Values are replaced by the names of their kinds, and the elements of a list are merged. For commands that measure or
draw at random, only the keys are recorded, because their values vary.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.frozen.command_line import tree, walk
from tickwheel import Tickwheel
from tickwheel.load.report.document import CALLS
from tickwheel.testing import PrivateServer

APP: Final = "tests.fault.recurring_app:app"
_RUN_S: Final = 60
# The values that these commands print depend on the machine and the moment.
_MEASURE: Final = {"bench", "demo", "doctor", "load"}
# The only output of these programs is the log. The first line appears when the program serves.
_SERVING: Final[dict[str, tuple[str, ...]]] = {
    "dev": ("dev", "--data-dir", "{folder}/dev", "--listen", "127.0.0.1:0"),
    "events": ("events", "--verbose"),
    "serve": ("serve", "--listen", "127.0.0.1:0", "--drive", "never"),
    "worker": ("worker", APP, "--drive", "never"),
}
# A scenario that produces every kind of result within seconds, even on a slow machine.
_STEADY: Final = """
length = "3s"
drain = "5s"
[[queue]]
name = "jobs"
arrivals = 60
delay = "200ms"
run = "1ms"
cancel = { share = 0.2, after = "10ms" }
"""
# The values of these keys depend on the machine.
_BY_CASE: Final = {"buckets", "errors", "troubles", "why"}
# The values of these keys are objects, whose keys are the names of the calls that were made.
_BY_CALL: Final = {"calls"}
_LOG_LINE: Final = ("at", "level", "logger", "text")
Run = Callable[..., Any]
Answers = dict[str, Any]


def commands_with_json() -> set[str]:
    """Return every command with the option ``--json``, except groups that cannot run without a subcommand."""
    return {
        " ".join(path)
        for path, command in walk(tree())
        if any("--json" in parameter.opts for parameter in command.params)
        and (not hasattr(command, "commands") or command.invoke_without_command)
        and path
    }


def answers() -> Answers:
    """Return the output of each command, run against a server started for this purpose."""
    with PrivateServer() as server:
        return answers_of(server)


def answers_of(server: PrivateServer) -> Answers:
    """Return the output of each command, run against a running server."""
    namespace = f"frozen-{os.urandom(6).hex()}"
    variables = {"TICKWHEEL_URL": server.url, "TICKWHEEL_NAMESPACE": namespace}
    answers: Answers = {}
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(patch.dict(os.environ, variables))
            stack.enter_context(Tickwheel(server.url, namespace=namespace))
            run = _recorder(answers)
            for session in (_life_of_messages, _inspection, _queues, _settings, _others):
                session(run, folder)
            _import(run, server)
            answers |= {name: _log_line(command, folder) for name, command in _SERVING.items()}
            # Which of these calls a run makes varies, so the keys of `calls` are recorded from the code.
            answers["load, names of the calls"] = list(CALLS)
    finally:
        server.clear(namespace)
    return answers


def _recorder(answers: Answers) -> Run:
    """Return a function that runs a command in this process, records its output under its name, and returns it."""
    from typer.testing import CliRunner

    from tickwheel.cli.app import app

    names = sorted(commands_with_json(), key=len, reverse=True)

    def run(
        *args: object, code: int | tuple[int, ...] = 0, stdin: str | None = None, note: str = "", alone: bool = False
    ) -> Any:
        words = [str(arg) for arg in args]
        with patch.dict(os.environ):
            if alone:
                # Use a separate namespace.
                del os.environ["TICKWHEEL_NAMESPACE"]
            result = CliRunner().invoke(app, [*words, "--json"], input=stdin)
        assert result.exit_code in (code if isinstance(code, tuple) else (code,)), (
            f"{words}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
        )
        printed = [json.loads(line) for line in result.stdout.splitlines()]
        name = next(name for name in names if words[: len(name.split())] == name.split())
        shapes = [shape(document, with_kinds=name not in _MEASURE) for document in printed]
        answers[f"{name}, {note}" if note else name] = _merged(shapes)
        return printed

    return run


def _life_of_messages(run: Run, folder: Path) -> None:
    run("queue", "create", "jobs", "--exclusive-key", "project", "--indexed", "gpu")
    meta = ("--meta", "project=p1", "--meta", "gpu=a100")
    run("enqueue", "jobs", "film", "--id", "a", *meta)
    lines = "".join(f'{{"id": "{id}", "payload": "x", "metadata": {{"project": "{id}"}}}}\n' for id in "bcdefgh")
    (folder / "messages.jsonl").write_text(lines)
    run("enqueue", "jobs", "--from", folder / "messages.jsonl", note="--from a file")
    taken = {
        message["id"]: message for message in run("dequeue", "jobs", "--limit", 5, "--worker", "w", "--lease", "2m")
    }
    assert len(taken) == 5
    first, second, third, fourth, fifth = taken.values()

    def lease(message: Any) -> tuple[str, ...]:
        return "jobs", message["id"], "--token", message["token"], "--exclusive-value", message["exclusive_value"]

    queue, id, *token = lease(first)
    run("extend", queue, id, "10m", *token)
    run("complete", *lease(first))
    run("fail", *lease(second), "--error", "no card", "--final")
    run("release", *lease(third))
    run("complete", "jobs", "-", stdin=json.dumps(fourth), note="of stdin")
    run("get", "jobs", fifth["id"], "--exclusive-value", fifth["exclusive_value"])
    run("get", *lease(second)[:2], *lease(second)[4:], note="of one that failed")
    run("explain", *lease(fifth)[:2], *lease(fifth)[4:])
    run("redrive", *lease(second)[:2], *lease(second)[4:])
    run("reschedule", "jobs", "h", "--exclusive-value", "h", "--delay", "1h")
    run("cancel", "jobs", "h", "--exclusive-value", "h")


def _inspection(run: Run, _: Path) -> None:
    run("counts")
    run("counts", "jobs", note="of a queue")
    run("depth", "jobs", "--where", "gpu=a100")
    run("messages", "jobs")
    run("queue", "create", "later", "--forecast")
    run("enqueue", "later", "x", "--delay", "90s")
    run("forecast", "later", "--minutes", 5)
    # No event process drives the shard, so the exit code depends on the age of the oldest timer.
    run("doctor", code=(0, 1))


def _queues(run: Run, _: Path) -> None:
    run("queue", "create", "plain")
    run("queue", "show", "plain")
    run("queue", "list")
    run("queue", "block", "plain", "--dequeue")
    run("queue", "unblock", "plain")
    run("queue", "purge", "plain", "--yes")
    run("queue", "delete", "plain", "--yes")


def _settings(run: Run, _: Path) -> None:
    run("setting", "set", "mail.sender", "shop@example.com")
    run("setting", "get", "mail.sender")
    run("setting", "list")
    run("setting", "unset", "mail.sender")
    run("route", "set", "mail.send", "--to", "tickwheel", "--share", "0.25")
    run("route", "list")
    run("route", "unset", "mail.send")


def _others(run: Run, folder: Path) -> None:
    run("schedules", APP, "--times", 2)
    run("acl")
    run("queue", "create", "first", "--namespace", "deleted")
    run("namespace", "delete", "--namespace", "deleted", "--yes")
    run("token", "shop")
    run("shards")
    run("shards", "reset-epoch", "--yes")
    run("bench", "--messages", 200, alone=True)
    # Exit code 1: on a busy machine, a cancellation can come after the due time. The keys are the same.
    run("demo", "--seconds", 4, "--workers", 1, "--shards", 1, alone=True, code=(0, 1))
    run("load", "order-timeouts", "--simulate-only", "--length", "10m", "--scale", "0.01", note="--simulate-only")
    scenario = folder / "steady.toml"
    scenario.write_text(_STEADY)
    run("load", scenario, alone=True)


def _import(run: Run, server: PrivateServer) -> None:
    """Import from a broker with a message that Celery has not written, so the message stays in the broker."""
    url = f"{server.url}?db=1"
    with server.client(db=1) as broker:
        broker.lpush("celery", json.dumps({"headers": {"id": "a", "task": "t"}, "properties": {}, "body": ""}))
        try:
            run("import", "celery", "--from", url, "--dry-run", code=1)
        finally:
            broker.delete("celery")


def _log_line(command: Sequence[str], folder: Path) -> Any:
    """Return the keys of a log line of a program that serves; the line must be JSON."""
    words = [word.replace("{folder}", str(folder)) for word in command]
    process = subprocess.Popen(
        [sys.executable, "-m", "tickwheel", *words, "--json"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        line = json.loads(process.stderr.readline())
    finally:
        process.terminate()
        process.communicate(timeout=_RUN_S)
    return {"a line of the log": {name: shape(line[name]) for name in sorted(line) if name in _LOG_LINE}}


def shape(value: Any, *, with_kinds: bool = True) -> Any:
    """Replace values by their kinds."""
    if isinstance(value, dict):
        return {_data_free(key): _member(key, item, with_kinds=with_kinds) for key, item in value.items()}
    if isinstance(value, list):
        return [_merged([shape(item, with_kinds=with_kinds) for item in value])]
    if not with_kinds:
        return "…"
    kinds = {bool: "bool", int: "number", float: "number", str: "string", type(None): "null"}
    return kinds[type(value)]


def _member(key: str, value: Any, *, with_kinds: bool) -> Any:
    if key in _BY_CASE:
        return "(by case)"
    members = shape(value, with_kinds=with_kinds)
    return {"(each call)": _merged(list(members.values()))} if key in _BY_CALL else members


def _data_free(key: str) -> str:
    """Return the key, or "(number)" if the key is a number or a time."""
    return "(number)" if re.fullmatch(r"[\d.]+", key) else key


def _merged(shapes: Sequence[Any]) -> Any:
    """Merge shapes into one: the union of the keys, and the kinds joined by "or"."""
    if not shapes:
        return "(nothing)"
    if all(isinstance(member, dict) for member in shapes):
        names = {name: None for member in shapes for name in member}
        return {name: _merged([member[name] for member in shapes if name in member]) for name in names}
    if all(isinstance(member, list) for member in shapes):
        inner = [member[0] for member in shapes if member and member[0] != "(nothing)"]
        return [_merged(inner)]
    return " or ".join(sorted(set(_kinds(shapes))))


def _kinds(shapes: Sequence[Any]) -> Iterator[str]:
    for member in shapes:
        yield member if isinstance(member, str) else "object" if isinstance(member, dict) else "array"
