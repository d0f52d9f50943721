"""The log and the environment as the code uses them: loggers, keys of lines, events with their fields, variables.

Most are read from the syntax trees of both packages, because no run executes every line. An event is recognised by
its form: a dictionary with a constant ``"event"``, or a call of a function that stores one of its parameters there.
"""

import ast
import json
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (ROOT / "scheduler", ROOT / "wheel")
# Also matches a part of a name in an f-string. The part would be a new entry, so the code must contain whole names.
_VARIABLE: Final = re.compile(r"TICKWHEEL_[A-Z_]*")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class EventFunction:
    """A function that returns the fields of an event."""

    parameters: list[str]
    event_at: int
    always: set[str]
    conditional_fields: dict[str, set[str]] = field(default_factory=dict)
    """The fields that depend on an optional parameter, by the parameter."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each file, except generated files."""
    files = (file for folder in FOLDERS for file in sorted(folder.rglob("*.py")) if file.parent.name != "v1")
    return {file: ast.parse(file.read_text()) for file in files}


def loggers() -> list[str]:
    """Return the names of the loggers."""
    return sorted({_text(call.args[0]) for tree in trees().values() for call in _get_logger(tree)})


def file_loggers() -> dict[str, list[str]]:
    """Return the loggers of each file, assigned or imported. Record them again if a file moves."""
    assigned = {
        (_module_name(file), name): _text(call.args[0])
        for file, tree in trees().items()
        for name, call in _assigned_loggers(tree)
    }
    names_by_module: dict[str, set[str]] = defaultdict(set)
    for file, tree in trees().items():
        names_by_module[_module_name(file)] |= {_text(call.args[0]) for call in _get_logger(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported = ((str(node.module), alias.name) for alias in node.names)
                names_by_module[_module_name(file)] |= {assigned[name] for name in imported if name in assigned}
    return {module: sorted(names) for module, names in names_by_module.items() if names}


def lines() -> dict[str, list[str]]:
    """Return the attributes that lines add to log records, and the keys of log lines in JSON."""
    from tickwheel.runtime.log_fields import log_fields
    from tickwheel.runtime.log_format import JsonLines

    calls = (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Call))
    extras = (word.value for call in calls for word in call.keywords if word.arg == "extra")
    literals = {key for extra in extras if isinstance(extra, ast.Dict) for key in _keys(extra)}
    extra = log_fields("an event", a_field=1)
    record = logging.getLogger("tickwheel").makeRecord(
        "tickwheel", logging.ERROR, "", 0, "text", (), _exception_info(), extra=extra
    )
    return {
        "attributes of log records": sorted(literals | set(extra)),
        "keys of a line with an exception and a field": sorted(json.loads(JsonLines().format(record))),
    }


def _exception_info() -> Any:
    try:
        raise ValueError
    except ValueError:
        return sys.exc_info()


def _module_name(file: Path) -> str:
    folder = next(folder for folder in FOLDERS if file.is_relative_to(folder))
    return ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def environment() -> list[str]:
    """Return the environment variables whose whole name is a string in the code."""
    texts = (node.value for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return sorted({text for text in texts if isinstance(text, str) and _VARIABLE.fullmatch(text)})


def events() -> dict[str, Any]:
    """Return the fields of each event, one entry for each combination, and its loggers.

    A field with ``?`` is optional. The logger ``(given)`` is a parameter of the function.
    """
    events: dict[str, dict[str, set[str]]] = defaultdict(lambda: {"fields": set(), "loggers": set()})
    for file, tree in trees().items():
        own = {**_public_makers(), **_makers(tree)}
        names = {name: _text(call.args[0]) for name, call in _assigned_loggers(tree)}
        for function in _functions(tree):
            for event, fields in _events_of(function, own):
                events[event]["fields"].add(", ".join(sorted(fields)) or "none")
                events[event]["loggers"] |= _loggers_of(function, names) or {f"(none in {file.name})"}
    return {event: {name: sorted(values) for name, values in parts.items()} for event, parts in events.items()}


def _functions(tree: ast.Module) -> Iterator[_Function]:
    """Yield all functions except nested functions, which are part of the outer function."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, _Function):
                yield node
            else:
                waiting.append(node)


def _events_of(function: _Function, makers: dict[str, EventFunction]) -> Iterator[tuple[str, set[str]]]:
    later = _set_later(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            keys = _keys(node)
            event = keys.pop("event", None)
            if isinstance(event, ast.Constant) and isinstance(event.value, str):
                yield event.value, set(keys) | {f"{key}?" for key in later.get(id(node), ())}
        elif isinstance(node, ast.Call) and (maker := makers.get(_called(node))) is not None:
            event = node.args[maker.event_at] if len(node.args) > maker.event_at else None
            if isinstance(event, ast.Constant) and isinstance(event.value, str):
                yield event.value, _fields_of_call(node, maker)


def _fields_of_call(call: ast.Call, maker: EventFunction) -> set[str]:
    named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    arguments = {*maker.parameters[: len(call.args)], *named}
    under_condition = {key for name, keys in maker.conditional_fields.items() if name in arguments for key in keys}
    return maker.always | under_condition | (named - set(maker.parameters))


@cache
def _public_makers() -> dict[str, EventFunction]:
    """Return the event functions that other modules can import."""
    everywhere = {name: maker for tree in trees().values() for name, maker in _makers_of(tree, {}).items()}
    return {name: maker for name, maker in everywhere.items() if not name.startswith("_")}


def _makers(tree: ast.Module) -> dict[str, EventFunction]:
    return _makers_of(tree, _public_makers())


def _makers_of(tree: ast.Module, known: dict[str, EventFunction]) -> dict[str, EventFunction]:
    makers = {}
    for function in _functions(tree):
        parameters = [argument.arg for argument in function.args.args]
        for node in ast.walk(function):
            event, fields = None, set[str]()
            if isinstance(node, ast.Dict):
                keys = _keys(node)
                event, fields = keys.pop("event", None), set(keys)
            elif isinstance(node, ast.Call) and (inner := known.get(_called(node))) is not None and node.args:
                event, fields = node.args[inner.event_at], _fields_of_call(node, inner)
            if isinstance(event, ast.Name) and event.id in parameters:
                conditional_fields = _under_conditions(function, parameters) if isinstance(node, ast.Dict) else {}
                makers[function.name] = EventFunction(
                    parameters, parameters.index(event.id), fields, conditional_fields
                )
    return makers


def _under_conditions(function: _Function, parameters: list[str]) -> dict[str, set[str]]:
    """Return the keys of dictionaries that depend on an optional parameter: ``{} if message is None else {…}``."""
    fields: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp):
            keys = {key for part in ast.walk(node) if isinstance(part, ast.Dict) for key in _keys(part)}
            for name in (part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)):
                if name in parameters:
                    fields[name] |= keys
    return fields


def _set_later(function: _Function) -> dict[int, set[str]]:
    """Return the keys that later statements add to the dictionary of a variable, by the id of the dictionary's node."""
    dict_ids: dict[str, int] = {}
    fields: dict[int, set[str]] = defaultdict(set)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            dict_ids |= dict.fromkeys(_names_given(node), id(node.value))
    for node in ast.walk(function):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in dict_ids and isinstance(node.slice, ast.Constant):
            fields[dict_ids[node.value.id]].add(str(node.slice.value))
    return fields


def _names_given(node: ast.AST) -> list[str]:
    """Return the names that an assignment sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _keys(node: ast.Dict) -> dict[str, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True)
    return {key.value: value for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _get_logger(tree: ast.AST) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "getLogger")


def _assigned_loggers(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from ((node.targets[0].id, call) for call in _get_logger(node.value))


def _loggers_of(function: _Function, names: dict[str, str]) -> set[str]:
    """Return the loggers that the function uses; for a function that only returns fields, all loggers of its file."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    arguments = {argument.arg for argument in function.args.args}
    fallback = {"(given)"} if used & arguments & {"log", "_log", "logger"} else set()
    return {names[name] for name in used & names.keys()} | fallback or set(names.values())


def _text(node: ast.expr) -> str:
    """Return the value of a constant, or of a name that a module assigns a constant to."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    for tree in trees().values():
        for statement in tree.body:
            value = getattr(statement, "value", None)
            if isinstance(value, ast.Constant) and name in _names_given(statement):
                return str(value.value)
    return f"(not a constant: {ast.unparse(node)})"
