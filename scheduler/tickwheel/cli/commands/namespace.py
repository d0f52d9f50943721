"""`tickwheel namespace delete`."""

import logging
from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.confirmation import confirm
from tickwheel.cli.output import format_count, print_json
from tickwheel.cli.removal_progress import remove_all
from tickwheel.cli.target import TIMEOUT, Target
from tickwheel.client.admin import unopened_backend
from tickwheel.client.settings import ClientSettings
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.text_escape import escape_unprintable

commands = CommandGroup(no_args_is_help=True, help="Delete namespaces.")


@commands.command()
@command("delete", "tickwheel namespace delete --namespace staging")
def delete(
    target: Target,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a namespace with all its queues, messages and settings. If the command is cut off, repeat it.

    End all event processes of the namespace first, also those of workers and services, and of clients with
    `drive=True`. Stop the workers and services, or restart them with `--drive never`. If the namespace relays its
    events to Kafka, let the relay publish all events before.
    """
    log_to_stderr(json=target.json, lowest=logging.WARNING)
    name = target.namespace or "tw"
    timeout = TIMEOUT if target.timeout is None else target.timeout
    settings = ClientSettings.validate(target.url, name, target.data_dir, None, False, timeout)
    confirm(f"Delete namespace {name!r} on {settings.display_url} with all its data?", yes=yes)
    with unopened_backend(settings) as (backend, run):
        removed = remove_all(backend.delete_namespace(), run, "keys", json=target.json)
    if target.json:
        print_json({"namespace": name, "removed_keys": removed})
    else:
        print(f"namespace {escape_unprintable(name)} is deleted; removed: {format_count(removed, 'key')}")
