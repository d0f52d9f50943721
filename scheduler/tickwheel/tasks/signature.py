"""A task's arguments: checked against its signature where they are sent, and again where they are read.

They travel as one JSON object, or msgpack map, of the parameters by name. What is sent has been read back first, by the
types of the signature: so a worker of the same version can read whatever was enqueued.
"""

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tickwheel.errors import InvalidArgument

ENCODINGS = ("json", "msgpack")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()
# A JSON object begins with this byte, and no msgpack map does.
_BRACE = ord("{")
# What a parameter without an annotation takes, beside lists and dicts. msgpack has bytes and times as well, which it
# does not take: tasks are the same in either encoding.
_PLAIN = (type(None), bool, int, float, str)


class ArgumentsRefused(InvalidArgument):
    """The arguments of a task do not fit its signature."""


class Envelope(msgspec.Struct):
    """A task as the payload of a message: its name, and its arguments as they were encoded."""

    task: str
    args: msgspec.Raw = msgspec.Raw(b"")


_READ_JSON = msgspec.json.Decoder(Envelope)
_READ_MSGPACK = msgspec.msgpack.Decoder(Envelope)


def read_envelope(payload: bytes) -> Envelope:
    """Which task a payload asks for. Raises ArgumentsRefused where it is no task at all."""
    try:
        return (_READ_JSON if payload[:1] == b"{" else _READ_MSGPACK).decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArgumentsRefused(f"the payload is no task: {error}") from error


class Signature:
    """How the arguments of one task are written and read."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        """Raises InvalidArgument for parameters that cannot be given by name."""
        self._task = task
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _BY_NAME:
                raise InvalidArgument(
                    f"task {task!r}: parameter '{parameter}' cannot be given by name; a task has no *args, **kwargs and"
                    " positional-only parameters"
                )
        self.names = tuple(self._signature.parameters)

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any], encoding: str) -> bytes:
        """The message of a call with these arguments. Raises ArgumentsRefused where they do not fit."""
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentsRefused(f"task {self._task!r}: {error}; its signature is {self._signature}") from None
        encoder = _JSON if encoding == "json" else _MSGPACK
        try:
            encoded = encoder.encode(arguments)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentsRefused(
                f"task {self._task!r}: an argument cannot be written as {encoding}: {error}"
            ) from error
        read = self.read(encoded)
        for name in self._untyped:
            if name in arguments and not _is_same(arguments[name], read[name]):
                raise ArgumentsRefused(
                    f"task {self._task!r}: {name!r} would arrive as another type than {type(arguments[name]).__name__}:"
                    " give the parameter an annotation"
                )
        return encoder.encode({"task": self._task, "args": msgspec.Raw(encoded)})

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call that fits, with the defaults."""
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments

    def read(self, encoded: bytes | msgspec.Raw) -> dict[str, Any]:
        """The arguments by name, of the signature's types. Raises ArgumentsRefused."""
        raw = bytes(encoded) or b"{}"
        json, msgpack = self._readers
        try:
            read = (json if raw[0] == _BRACE else msgpack).decode(raw)
        except msgspec.DecodeError as error:
            raise ArgumentsRefused(f"task {self._task!r}: {error}; its signature is {self._signature}") from error
        except Exception as error:
            # Of a type that is the program's own and raises what it likes; or values are nested too deeply.
            raise ArgumentsRefused(
                f"task {self._task!r}: {type(error).__name__}: {error}; its signature is {self._signature}"
            ) from error
        return {name: value for name in self.names if (value := getattr(read, name)) is not UNSET}

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Not at once: an annotation may name what the module defines further down.
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise InvalidArgument(f"task {self._task!r}: its annotations name what there is not: {error}") from error

    @cached_property
    def _untyped(self) -> list[str]:
        return [name for name in self.names if self._hints.get(name, Any) is Any]

    @cached_property
    def _readers(self) -> tuple[msgspec.json.Decoder[Any], msgspec.msgpack.Decoder[Any]]:
        fields: list[Any] = []
        for name, parameter in self._signature.parameters.items():
            kind = self._hints.get(name, Any)
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind if kind is Any else typing.Union[kind, UnsetType], UNSET))  # noqa: UP007
        try:
            struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(struct), msgspec.msgpack.Decoder(struct)
        except TypeError as error:
            raise InvalidArgument(f"task {self._task!r}: a parameter's type cannot be read back: {error}") from error

    def check(self) -> None:
        """Raises InvalidArgument for annotations that cannot be read back: for the start of a worker."""
        _ = self._readers


def _is_same(sent: object, read: object) -> bool:
    """Whether two values are plain, and equal with the types of all that is in them: ``==`` takes 1.0 for 1."""
    # No recursion: what was encoded may be nested deeper than calls may be.
    left = [(sent, read)]
    while left:
        one, other = left.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, dict) and isinstance(other, dict):
            if _with_types(one) != _with_types(other):
                return False
            left += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            left += zip(one, other, strict=True)
        elif type(one) not in _PLAIN or one != other:
            return False
    return True


def _with_types(keys: dict[object, object]) -> set[tuple[type, object]]:
    return {(type(key), key) for key in keys}
