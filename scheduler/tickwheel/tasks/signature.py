"""The arguments of a task: encoding and decoding, each with a check against the signature of the task.

Arguments are sent as one JSON object, or msgpack map, by parameter name. Before a call is sent, its encoded arguments
are decoded as a check, with the types of the signature. So a worker of the same version can decode all arguments that
were enqueued.
"""

import inspect
import re
from collections.abc import Callable, Container
from functools import cached_property
from typing import Any, Final, Union, get_type_hints

import msgspec

from tickwheel.errors import ArgumentsRefused, InvalidArgument
from tickwheel.runtime.text_escape import cut_middle
from tickwheel.tasks.parameter_types import why_not_decodable

ENCODINGS = ("json", "msgpack")
# The name in logs and metrics of a task that is not known.
UNKNOWN: Final = "(unknown)"
# A payload can contain any name, also one that imitates the rest of a log line.
_LOGGED_NAME: Final = re.compile(r"[\w.<>-]{1,128}")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()
# A JSON object begins with this byte, and no msgpack map does.
_BRACE = ord("{")
# The bytes with which a msgpack map begins.
_MAP_HEADS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
# The maximum length of the reason in an error. The reason can contain names and values of the payload.
_REASON_BYTES = 512
# The types that a parameter without an annotation accepts, in addition to lists and dicts. The bytes and times of
# msgpack are not accepted, so that tasks behave the same in both encodings.
_PLAIN = (type(None), bool, int, float, str)


class Envelope(msgspec.Struct):
    """The payload of a message: the name of a task, and its encoded arguments."""

    task: str
    args: msgspec.Raw = msgspec.Raw(b"")


_READ_JSON = msgspec.json.Decoder(Envelope)
_READ_MSGPACK = msgspec.msgpack.Decoder(Envelope)


def read_envelope(payload: bytes) -> Envelope:
    """Return the task name and the encoded arguments of a payload. Raises ArgumentsRefused if it is not a call."""
    try:
        return (_READ_JSON if payload[:1] == b"{" else _READ_MSGPACK).decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        if payload[:1] == b"{":
            problem = f"it begins as a JSON object, but {error}"
        elif payload and payload[0] in _MAP_HEADS:
            problem = f"it begins as a msgpack map, but {error}"
        else:
            problem = "it is neither a JSON object nor a msgpack map"
        raise ArgumentsRefused(f"the payload is not a call of a task: {problem}") from error


def logged_name(name: str, tasks: Container[str]) -> str:
    """Return the name of a task as logs show it: UNKNOWN if ``tasks`` lacks the name and it has unusual characters."""
    return name if name in tasks or _LOGGED_NAME.fullmatch(name) else UNKNOWN


def called_task(payload: bytes, tasks: Container[str]) -> str:
    """Return the name of the task that a payload calls, as logs show it. Raises nothing, whatever the payload is."""
    try:
        name = read_envelope(payload).task
    except Exception:
        # The payload is no call of a task. No payload may stop a consumer; the runner fails the message.
        return UNKNOWN
    return logged_name(name, tasks)


class Signature:
    """Encodes and decodes the arguments of one task."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        """Raises InvalidArgument if a parameter cannot be passed by name, or if its type cannot be decoded."""
        self._task = task
        self._function = function
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"task {task!r}: {error}; define a function with named parameters") from error
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _BY_NAME:
                raise InvalidArgument(
                    f"task {task!r}: parameter '{parameter}' cannot be passed by name; a task may not have *args,"
                    " **kwargs or positional-only parameters"
                )
        self.names = tuple(self._signature.parameters)
        self._check_types()

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any], encoding: str) -> bytes:
        """Return the payload of a call. Raises ArgumentsRefused if the arguments do not fit the signature."""
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentsRefused(f"task {self._task!r}: {error}; {self._parameters}") from None
        encoder = _JSON if encoding == "json" else _MSGPACK
        try:
            encoded = encoder.encode(arguments)
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError) as error:
            raise ArgumentsRefused(
                f"task {self._task!r}: an argument cannot be encoded as {encoding}: {error}"
            ) from error
        read = self.read(encoded)
        for name in self._untyped:
            if name in arguments and not _is_same(arguments[name], read[name]):
                raise ArgumentsRefused(
                    f"task {self._task!r}: {name!r} would arrive as another type than {type(arguments[name]).__name__}:"
                    " annotate the parameter with its type"
                )
        return encoder.encode({"task": self._task, "args": msgspec.Raw(encoded)})

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments of a call, with defaults. The arguments must fit the signature."""
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments

    def read(self, encoded: bytes | msgspec.Raw) -> dict[str, Any]:
        """Return the decoded arguments by name, with the types of the signature. Raises ArgumentsRefused."""
        raw = bytes(encoded) or b"{}"
        json, msgpack = self._readers
        try:
            read = (json if raw[0] == _BRACE else msgpack).decode(raw)
        except Exception as error:
            # The user's own classes may raise any exception. Values that are nested too deeply raise RecursionError.
            kind = "" if isinstance(error, msgspec.DecodeError) else f"{type(error).__name__}: "
            reason = cut_middle(f"{kind}{error}", _REASON_BYTES)
            raise ArgumentsRefused(f"task {self._task!r}: {reason}; {self._parameters}") from error
        return {name: value for name in self.names if (value := getattr(read, name)) is not msgspec.UNSET}

    def _check_types(self) -> None:
        """Raise InvalidArgument if the type of a parameter cannot be decoded.

        If an annotation names a class that the module defines further down, `check` finds such types later.
        """
        try:
            hints = self._hints
        except Exception:
            return
        for name, parameter in self._signature.parameters.items():
            is_required = parameter.default is inspect.Parameter.empty
            if (reason := why_not_decodable(hints.get(name, Any), is_required=is_required)) is not None:
                shown = inspect.formatannotation(parameter.annotation)
                raise InvalidArgument(f"task {self._task!r}: parameter {name!r} of the type {shown}: {reason}")

    @property
    def _parameters(self) -> str:
        # Without the defaults: a worker stores the error with the message, and every client of the queue can read it.
        return f"its parameters are: {', '.join(self.names) or 'none'}"

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Evaluated at first use: an annotation may name a class that the module defines further down.
        try:
            return get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise InvalidArgument(f"task {self._task!r}: an annotation cannot be resolved: {error}") from error

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
                fields.append((name, kind if kind is Any else Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
        try:
            struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(struct), msgspec.msgpack.Decoder(struct)
        except TypeError as error:
            raise InvalidArgument(f"task {self._task!r}: a parameter's type cannot be decoded: {error}") from error

    def check(self) -> None:
        """Raise InvalidArgument if a type cannot be decoded. Workers check this when they start."""
        self._check_types()
        _ = self._readers


def _is_same(sent: object, read: object) -> bool:
    """Return whether two values are plain and equal, and have items of the same types: ``==`` alone takes 1.0 for 1."""
    # This function is not recursive: values may be nested more deeply than Python's recursion limit.
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
