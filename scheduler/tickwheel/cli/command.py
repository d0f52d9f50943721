"""The decorator that makes a function a command, and the options that every command has.

The common options (--url, --data-dir, --namespace, --timeout, --json) may precede or follow the command's name.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Concatenate, get_args, get_origin

import typer
from typer.models import OptionInfo

from tickwheel.cli.command_help import COMMON_PANEL
from tickwheel.cli.exit_codes import report_errors
from tickwheel.cli.grpc_log import silence_grpc
from tickwheel.cli.option_names import name_options
from tickwheel.cli.output import use_json
from tickwheel.cli.parameter_types import directory, option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.rpc.url import is_grpc_url


def _common_options(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Server (redis://, rediss://, unix://), cluster (redis+cluster://, rediss+cluster://) or service"
            " (grpc://, grpcs://). Default: an embedded server. [TICKWHEEL_URL]",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            parser=option_parser(directory),
            help="Directory of the embedded server. [TICKWHEEL_DATA_DIR]",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            metavar="NAME",
            help="Namespace. Default: tw. [TICKWHEEL_NAMESPACE]",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            parser=option_parser(parse_duration),
            help="How long to wait for the server. Default: 5s; for a worker, that of its app. [TICKWHEEL_TIMEOUT]",
            rich_help_panel=COMMON_PANEL,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON documents, one a line.", rich_help_panel=COMMON_PANEL),
    ] = False,
) -> Target:
    return Target(url, data_dir, namespace, timeout, json)


_OPTIONS = list(inspect.signature(_common_options).parameters.values())
_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def command(name: str, *examples: str) -> Callable[[Callable[Concatenate[Target, ...], None]], Callable[..., None]]:
    """Return a decorator that makes a function a command. The function's first parameter is the `Target`.

    The examples are appended to the help of the command.
    """

    def decorate(function: Callable[Concatenate[Target, ...], None]) -> Callable[..., None]:
        run = _with_common_options(function)
        run.__name__ = name
        run.__doc__ = _help(function, examples)
        return run

    return decorate


def default_command(
    commands: typer.Typer, *examples: str
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Return a decorator that makes a function the default command of a group.

    The function runs if the command line names the group, but no command of the group.
    """

    def decorate(function: Callable[[Target], None]) -> Callable[[Target], None]:
        run = _with_common_options(function)

        def run_default(context: typer.Context, **options: Any) -> None:
            if context.invoked_subcommand is None:
                run(context, **options)
            else:
                root = context.find_root()
                root.obj = _pop_target(options).merged_with(root.obj or Target())

        # A function may have this attribute.
        run_default.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]
        commands.callback(invoke_without_command=True, help=_help(function, examples))(run_default)
        return function

    return decorate


def store_options(context: typer.Context, **options: Any) -> None:
    """Store the options that precede the command's name."""
    context.obj = _pop_target(options)


def top_signature(*own: inspect.Parameter) -> inspect.Signature:
    """Return the signature of the program: the options ``own``, and the common options."""
    return inspect.Signature([_CONTEXT, *own, *_OPTIONS])


def _with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function that typer calls. Its parameters are the options of ``function`` and the common options.

    If the type of a parameter is a dataclass, the fields of the dataclass replace the parameter.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())[1:]
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in parameters if is_dataclass(parameter.annotation)
    }
    own: list[inspect.Parameter] = []
    for parameter in parameters:
        group = groups.get(parameter.name)
        own += [parameter] if group is None else inspect.signature(group, eval_str=True).parameters.values()
    for parameter in own:
        _set_metavar(parameter.annotation)

    def run(context: typer.Context, **options: Any) -> None:
        root = context.find_root()
        use_json(options["json"] or (root.obj or Target()).json)
        with report_errors(partial(name_options, parameters=context.command.params)):
            target = _pop_target(options).merged_with(root.obj or Target()).merged_with(Target.from_environment())
            target = replace(target, command=context.command_path.removeprefix(root.command_path).strip())
            if target.url is not None and is_grpc_url(target.url) and not options.get("verbose"):
                silence_grpc()
            for name, group in groups.items():
                options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
            function(target, **options)

    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function may have this attribute
        parameters=[_CONTEXT, *(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own), *_OPTIONS]
    )
    return run


def _help(function: Callable[..., None], examples: Sequence[str]) -> str:
    # The help keeps the line breaks of all paragraphs but the first. So a paragraph must be one line, which is then
    # wrapped at the width of the terminal.
    paragraphs = [" ".join(text.split()) for text in (inspect.getdoc(function) or "").split("\n\n")]
    text = "\n\n".join(paragraphs)
    # After \b, the help keeps the line breaks of the paragraph.
    return "\n".join([f"{text}\n\n\b\nExamples:", *(f"  {_escape_markup(line)}" for line in examples)])


def _escape_markup(line: str) -> str:
    if "[" not in line:
        return line
    # Imported here, because it takes 20 ms, and few examples have brackets.
    from rich.markup import escape

    return escape(line)


def _set_metavar(annotation: Any) -> None:
    """Set the word for the value of an option in the help: none for a flag, N for a number, otherwise TEXT.

    By default, the word is the type of Python, for example ``<int range>``.
    """
    kind, *details = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    types = set(get_args(kind) or (kind,))
    for detail in details:
        if isinstance(detail, OptionInfo) and detail.metavar is None:
            detail.metavar = "" if bool in types else "N" if types & {int, float} else "TEXT"


def _pop_target(options: dict[str, Any]) -> Target:
    return _common_options(**{parameter.name: options.pop(parameter.name) for parameter in _OPTIONS})


for _option in _OPTIONS:
    _set_metavar(_option.annotation)
