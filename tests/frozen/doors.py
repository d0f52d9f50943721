"""The public modules, "doors": their names, and which names of two doors are the same object.

Nothing here depends on where code lives: a name is looked up in its door, wherever it is defined.
"""

import ast
import inspect
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

from tests.frozen import shapes

DOORS: Final = (
    "tickwheel",
    "tickwheel.aio",
    "tickwheel.celery",
    "tickwheel.doctor",
    "tickwheel.embedded",
    "tickwheel.errors",
    "tickwheel.event_process",
    "tickwheel.events",
    "tickwheel.limits",
    "tickwheel.tasks",
    "tickwheel.testing",
    "tickwheel.testing.plugin",
    "tickwheel.tracing",
    "tickwheel.v1.message_pb2",
    "tickwheel.v1.message_service_pb2",
    "tickwheel.v1.queue_service_pb2",
    "tickwheel.worker.selectors",
)
Names = Mapping[str, set[str]]


def met_beyond_doors() -> dict[str, Any]:
    """Types that users are given, but import from nowhere; by what gives them. Follows renames of internal names."""
    from tickwheel.model.queue_config import QueueConfig
    from tickwheel.testing.task_tester import TaskTester

    return {"what Queue.config answers": QueueConfig, "what the fixture tickwheel_tasks makes": TaskTester}


def public_names(door: str, recorded: Names) -> list[str]:
    """Its ``__all__``; without one, what the module itself defines, and what was recorded and is still there."""
    module = import_module(door)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    if door.startswith("tickwheel.v1."):
        found = {name for name, value in vars(module).items() if not isinstance(value, ModuleType)}
    else:
        found = _defined(module)
    found |= {name for name in recorded.get(door, ()) if hasattr(module, name)}
    return sorted(name for name in found if not name.startswith("_") and not _is_variable(getattr(module, name)))


def surface(recorded: Names) -> dict[str, Any]:
    """Each door's names, and what each is."""
    public = public_types(recorded)
    found: dict[str, Any] = {}
    for door in DOORS:
        module = import_module(door)
        names = public_names(door, recorded)
        if door == "tickwheel":
            names.append("__version__")
        found[door] = {name: shapes.of(getattr(module, name), public) for name in names}
        if door == "tickwheel":
            found[door]["__version__"] = {"is": "a value of type str"}
    beyond = {name: shapes.of(kind, public) for name, kind in met_beyond_doors().items()}
    # How to make them is nobody's business, nor what a configuration can do for the client.
    kept = {"fields", "methods"}
    found["(met beyond doors)"] = {
        name: {key: value for key, value in each.items() if key in kept - ({"methods"} if "fields" in each else set())}
        for name, each in beyond.items()
    }
    # Messages are made of what scripts answer, by the client alone.
    for door in ("tickwheel", "tickwheel.aio"):
        del found[door]["Message"]["constructor"]
    return found


def public_types(recorded: Names) -> dict[type, str]:
    """The classes that users may name, by which annotations and bases are told apart from internal ones."""
    found = {}
    for door in DOORS:
        for name in public_names(door, recorded):
            value = getattr(import_module(door), name)
            if isinstance(value, type):
                found[value] = name
    return found


def identities(recorded: Names) -> list[list[str]]:
    """The doors' names that are one object, where there are several."""
    same: dict[int, list[str]] = defaultdict(list)
    for door in DOORS:
        for name in public_names(door, recorded):
            value = getattr(import_module(door), name)
            if isinstance(value, type) or inspect.isfunction(value):
                same[id(value)].append(f"{door}.{name}")
    return sorted(sorted(names) for names in same.values() if len(names) > 1)


def fixtures() -> dict[str, Any]:
    """The fixtures of the pytest plugin: their scope and what they ask for; and the settings of its marker."""
    module = import_module("tickwheel.testing.plugin")
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        marker = getattr(value, "_fixture_function_marker", None)
        if marker is not None and not name.startswith("_"):
            found[f"fixture {marker.name or name}"] = {"scope": marker.scope, "autouse": marker.autouse}

    class Lines:
        def addinivalue_line(self, name: str, line: str) -> None:
            found[f"marker of {name}"] = line.partition(":")[0]

    module.pytest_configure(Lines())
    return found


def _defined(module: ModuleType) -> set[str]:
    """The names that the module's own text gives values to, without what it imports."""
    found = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if hasattr(module, name)}


def _is_variable(value: Any) -> bool:
    """A variable of types, or a generated module's own: of no use to anybody."""
    return isinstance(value, TypeVar) or type(value).__name__ in {"FileDescriptor", "Logger"}
