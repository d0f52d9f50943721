"""The public surface of an object: its signature, methods, attributes, bases and defaults.

Internal names are not recorded: an annotation with an internal name is omitted, and the members of an internal base
are recorded as members of the class.
"""

import ast
import builtins
import collections.abc
import dataclasses
import datetime
import enum
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeGuard

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

PublicTypes = Mapping[type, str]
# Names that an annotation may contain. Every other name must be public, or the annotation is not recorded.
_KNOWN: Final = {
    *dir(builtins),
    *typing.__all__,
    *collections.abc.__all__,
    *(name for name in dir(datetime) if not name.startswith("_")),
    *("Path", "TracebackType", "FrameType", "ModuleType", "Logger", "LogRecord", "Random", "AbstractContextManager"),
}
_OPERATORS: Final = (
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__call__", "__iter__", "__next__", "__aiter__", "__len__"),
    *("__contains__", "__getitem__", "__await__"),
)
_PLAIN: Final = (bool, int, float, str, bytes, type(None), datetime.timedelta)


def of(value: Any, public: PublicTypes) -> Any:
    """Return the description of an object."""
    if isinstance(value, type) and issubclass(value, Message):
        return {"is": "a message", "fields": sorted(value.DESCRIPTOR.fields_by_name)}
    if isinstance(value, EnumTypeWrapper):
        return {"is": "an enumeration", "values": dict(value.items())}
    if isinstance(value, type):
        return _class(value, public)
    if hasattr(value, "_fixture_function_marker"):
        return {"is": "a fixture, see pytest_plugin.json"}
    if (callable(value) and hasattr(value, "__wrapped__")) or inspect.isroutine(value):
        return {"is": _kind(value), "signature": signature(value, public)}
    if isinstance(value, Mapping):
        return {"is": "a mapping", "keys": sorted(map(str, value))}
    if isinstance(value, (*_PLAIN, tuple, frozenset)):
        return {"is": "a value", "value": stable(value)}
    return {"is": "an object"}


def stable(value: Any) -> str:
    """Return a repr that is the same in every run, and that does not contain the module of the type."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(stable, value))})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(stable, value)))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{stable(key)}: {stable(item)}" for key, item in value.items()) + "}"
    if isinstance(value, enum.Enum):
        return value.name
    if value is dataclasses.MISSING:
        return "none"
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__name__ if value.__name__ != "<lambda>" else "a function"
    return re.sub(r" at 0x[0-9a-f]+", "", f"a {type(value).__name__}" if "object at" in repr(value) else repr(value))


def signature(function: Any, public: PublicTypes) -> list[str]:
    """Return an entry for each parameter, then the return type."""
    function_signature = inspect.signature(function)
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    return [*_parameters(function_signature, scope, public), *_answer(function_signature, scope, public)]


def construction(kind: type, public: PublicTypes) -> list[str]:
    """Return an entry for each parameter of the constructor."""
    if issubclass(kind, BaseException) and not any("__init__" in vars(base) for base in filter(_ours, kind.__mro__)):
        # It inherits the constructor of a built-in exception, whose signature depends on the version of Python.
        return ["*args"]
    scope = vars(sys.modules[kind.__module__])
    return list(_parameters(inspect.signature(kind), scope, public))


def _parameters(function_signature: inspect.Signature, scope: dict[str, Any], public: PublicTypes) -> Iterator[str]:
    kinds = inspect.Parameter
    stars: dict[Any, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    suffixes: dict[Any, str] = {kinds.POSITIONAL_ONLY: " (by position only)", kinds.KEYWORD_ONLY: " (by name only)"}
    for parameter in function_signature.parameters.values():
        text = stars.get(parameter.kind, "") + parameter.name
        known = annotation(parameter.annotation, scope, public)
        text += f": {known}" if known else ""
        if parameter.default is not kinds.empty:
            text += f" = {stable(parameter.default)}"
        yield text + suffixes.get(parameter.kind, "")


def _answer(function_signature: inspect.Signature, scope: dict[str, Any], public: PublicTypes) -> list[str]:
    known = annotation(function_signature.return_annotation, scope, public)
    return [f"-> {known}"] if known else []


def annotation(hint: Any, scope: dict[str, Any], public: PublicTypes) -> str | None:
    """Return the annotation with bare names, or None if there is no annotation or it has an internal name."""
    if hint is inspect.Signature.empty:
        return None
    if isinstance(hint, str):
        # A name may be imported for type checkers alone.
        with suppress(Exception):
            hint = eval(hint, scope)
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    try:
        tree = ast.parse(re.sub(r"ForwardRef\((\'[^\']*\')[^)]*\)", r"\1", text), mode="eval")
    except SyntaxError:
        return None
    bare = _Bare()
    text = ast.unparse(bare.visit(tree))
    # The internal name of a class can differ from its public name.
    public_name = {kind.__name__: name for kind, name in public.items()}
    text = re.sub(r"\w+", lambda word: public_name.get(word[0], word[0]), text)
    allowed = _KNOWN | set(public.values()) | set(public_name)
    return text if bare.names <= allowed else None


class _Bare(ast.NodeTransformer):
    """Removes the modules of names, and the quotes of quoted names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.visit_Name(ast.Name(node.attr))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.names.add(node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Write unions as ``A | B`` in every version of Python."""
        of = ast.unparse(node.value).rpartition(".")[2]
        if of == "Literal":
            return self.visit_Name(ast.Name(of)) and ast.Subscript(ast.Name(of), node.slice)
        if of not in ("Optional", "Union"):
            return self.generic_visit(node)
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts += [ast.Constant(None)] if of == "Optional" else []
        united: ast.expr = parts[0]
        for part in parts[1:]:
            united = ast.BinOp(united, ast.BitOr(), part)
        return self.generic_visit(united)


def _kind(function: Any) -> str:
    bare = inspect.unwrap(function)
    if inspect.iscoroutinefunction(function):
        return "async function"
    if inspect.isasyncgenfunction(bare):
        return "async generator" if bare is function else "function"
    return "function"


def _class(kind: type, public: PublicTypes) -> dict[str, Any]:
    description: dict[str, Any] = {"is": "class", "bases": _bases(kind, public)}
    if issubclass(kind, enum.Enum):
        return description | {"members": {member.name: stable(member.value) for member in kind}}
    if dataclasses.is_dataclass(kind):
        description["frozen"] = bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # typeshed hides it
        description["fields"] = [_field(field) for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    if not getattr(kind, "_is_protocol", False):
        description["constructor"] = construction(kind, public)
    methods, attributes = {}, dict.fromkeys(_assigned(kind), "attribute")
    for name in dir(kind):
        holder = next((base for base in kind.__mro__ if name in vars(base)), object)
        if (name.startswith("_") and name not in _OPERATORS) or not _ours(holder):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property):
            attributes[name] = "property" if value.fset is None else "property that can be set"
        elif isinstance(value, staticmethod | classmethod) or inspect.isroutine(value):
            bound = getattr(kind, name)
            how = {staticmethod: "static ", classmethod: "class "}.get(type(value), "")
            methods[name] = {
                "is": how + _kind(bound).replace("function", "method"),
                "signature": signature(bound, public),
            }
        elif isinstance(value, type) or inspect.ismemberdescriptor(value) or name in attributes:
            attributes[name] = "attribute"
        else:
            attributes[name] = f"attribute = {stable(value)}" if isinstance(value, _PLAIN) else "attribute"
    return description | {"methods": methods, "attributes": attributes}


def _bases(kind: type, public: PublicTypes) -> list[str]:
    """Return the public and foreign base classes, nearest first."""
    above = (base for base in kind.__mro__[1:] if base is not object)
    return [public.get(base, base.__name__) for base in above if base in public or not _ours(base)]


def _field(field: "dataclasses.Field[Any]") -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name} = {stable(field.default_factory())}"
    return field.name if field.default is dataclasses.MISSING else f"{field.name} = {stable(field.default)}"


def _ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in {"tickwheel", "timing_wheel"}


def _assigned(kind: type) -> set[str]:
    """Return the public attributes that a class or an internal base declares, or assigns in ``__init__``."""
    names: set[str] = set()
    for base in filter(_ours, kind.__mro__):
        definition = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(definition, ast.ClassDef)
        for part in definition.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
            elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
                names |= {node.attr for node in ast.walk(part) if _is_stored_in_self(node)}
    return {name for name in names if not name.startswith("_")}


def _is_stored_in_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
