"""The public modules, called "doors": their names, and the groups of names that are the same object.

The record does not depend on the file that defines an object, because each name is looked up in its door.
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
    """Return types that users receive but cannot import, by the function or fixture that returns them."""
    from tickwheel.model.queue_config import QueueConfig
    from tickwheel.testing.task_tester import TaskTester

    return {"what Queue.config answers": QueueConfig, "what the fixture tickwheel_tasks makes": TaskTester}


def public_names(door: str, recorded: Names) -> list[str]:
    """Return ``__all__`` of a door. If it has none, return the names that the module defines, and the recorded names
    that still exist.
    """
    module = import_module(door)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    if door.startswith("tickwheel.v1."):
        names = {name for name, value in vars(module).items() if not isinstance(value, ModuleType)}
    else:
        names = _defined(module)
    names |= {name for name in recorded.get(door, ()) if hasattr(module, name)}
    return sorted(name for name in names if not name.startswith("_") and not _is_variable(getattr(module, name)))


def surface(recorded: Names) -> dict[str, Any]:
    """Return the names of each door, each with a description of its object."""
    public = public_types(recorded)
    doors: dict[str, Any] = {}
    for door in DOORS:
        module = import_module(door)
        names = public_names(door, recorded)
        if door == "tickwheel":
            names.append("__version__")
        doors[door] = {name: shapes.of(getattr(module, name), public) for name in names}
        if door == "tickwheel":
            doors[door]["__version__"] = {"is": "a value of type str"}
    beyond = {name: shapes.of(kind, public) for name, kind in met_beyond_doors().items()}
    # Users do not construct these types, and only read a configuration: its fields and its properties.
    doors["(met beyond doors)"] = {
        name: {"fields": description["fields"], "properties": _properties(description["attributes"])}
        if "fields" in description
        else {"methods": description["methods"]}
        for name, description in beyond.items()
    }
    # Only the client constructs messages, from the replies of scripts.
    for door in ("tickwheel", "tickwheel.aio"):
        del doors[door]["Message"]["constructor"]
    return doors


def public_types(recorded: Names) -> dict[type, str]:
    """Return the classes that users can import. Every other class in an annotation or among the bases is internal."""
    names_by_type = {}
    for door in DOORS:
        for name in public_names(door, recorded):
            value = getattr(import_module(door), name)
            if isinstance(value, type):
                names_by_type[value] = name
    return names_by_type


def identities(recorded: Names) -> list[list[str]]:
    """Return the groups of names that are the same object."""
    same: dict[int, list[str]] = defaultdict(list)
    for door in DOORS:
        for name in public_names(door, recorded):
            value = getattr(import_module(door), name)
            if isinstance(value, type) or inspect.isfunction(value):
                same[id(value)].append(f"{door}.{name}")
    return sorted(sorted(names) for names in same.values() if len(names) > 1)


def fixtures() -> dict[str, Any]:
    """Return the fixtures of the pytest plugin with their scopes, and the settings of its marker."""
    module = import_module("tickwheel.testing.plugin")
    fixtures: dict[str, Any] = {}
    for name, value in vars(module).items():
        marker = getattr(value, "_fixture_function_marker", None)
        if marker is not None and not name.startswith("_"):
            fixtures[f"fixture {marker.name or name}"] = {"scope": marker.scope, "autouse": marker.autouse}

    class Lines:
        def addinivalue_line(self, name: str, line: str) -> None:
            fixtures[f"marker of {name}"] = line.partition(":")[0]

    module.pytest_configure(Lines())
    return fixtures


def _properties(attributes: Mapping[str, str]) -> list[str]:
    return sorted(name for name, kind in attributes.items() if kind.startswith("property"))


def _defined(module: ModuleType) -> set[str]:
    """Return the names that the module's source assigns, without imported names."""
    names = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if hasattr(module, name)}


def _is_variable(value: Any) -> bool:
    """Whether the value is a type variable or an internal object of a generated module, which users cannot use."""
    return isinstance(value, TypeVar) or type(value).__name__ in {"FileDescriptor", "Logger"}
