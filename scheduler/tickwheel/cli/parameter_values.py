"""The conversion of arguments and options. Typer's own imports pydantic, which takes 100 ms, and few values need it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def convert_quickly(parameters: Sequence[Any]) -> Sequence[Any]:
    """Return the parameters. Their values are converted by Typer only if they need it."""
    for parameter in parameters:
        # Typer stores its conversion in this attribute when it first needs it. Old versions do not use pydantic.
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = _Conversion()
    return parameters


class _Conversion:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter for the function of the command. Typer calls this."""
        annotation = param.type_descriptor.annotation
        parser = param.type_descriptor.parameter_info.parser
        is_list = param.multiple or param.nargs != 1
        if value is None:
            return () if is_list else None
        if parser is not None and not is_list:
            # Typer parses the value again, and describes the error.
            with suppress(ValueError, AssertionError):
                return parser(value)
        elif parser is None and annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        elif parser is None and type(value) is annotation:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
