"""Which types of parameters a worker can decode. A type that it cannot decode is found when the task is declared."""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import inspect as types

# What a worker decodes if a type is none that msgspec knows. Such a type accepts a value if it is an instance of it.
_DECODED: Final = (bool, int, float, str, list, dict, type(None), bytes, datetime, msgspec.msgpack.Ext)
_ALLOWED: Final = (
    "use bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, enums, dataclasses, TypedDicts,"
    " or lists and dicts of them"
)


def why_not_decodable(kind: Any, *, is_required: bool) -> str | None:
    """Return why no argument of this type can be decoded, and which types can; None if it can, or if this is unknown.

    A parameter that is not required can have such a type, because calls can leave it out, but no invalid union.
    """
    try:
        info = types.type_info(kind)
    except TypeError as error:
        return f"{error}; {_ALLOWED}"
    except Exception:
        # For example a field of a class names another class that the module defines further down.
        return None
    culprit = _undecodable(info, set()) if is_required else None
    return None if culprit is None else f"{culprit} cannot be decoded from a message; {_ALLOWED}"


def _undecodable(info: types.Type, seen: set[int]) -> str | None:
    """Return the name of a class without which no value of the type exists, and which cannot be decoded, or None."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    match info:
        case types.CustomType():
            return None if _accepts_decoded(info.cls) else f"{info.cls.__module__}.{info.cls.__qualname__}"
        case types.ListType() | types.SetType() | types.FrozenSetType() | types.VarTupleType():
            inner = [info.item_type]
        case types.TupleType():
            inner = list(info.item_types)
        case types.DictType():
            inner = [info.key_type, info.value_type]
        case types.DataclassType() | types.StructType() | types.TypedDictType() | types.NamedTupleType():
            inner = [field.type for field in info.fields if field.required]
        case types.Metadata():
            inner = [info.type]
        case _:
            inner = []
    return next((name for one in inner if (name := _undecodable(one, seen)) is not None), None)


def _accepts_decoded(cls: Any) -> bool:
    try:
        return any(issubclass(kind, cls) for kind in _DECODED)
    except TypeError:
        # For example a protocol that does not allow the check.
        return True
