"""The configuration that an app declares for a queue which the app may not create or change.

Compares the declaration with the queue that exists, and names the command that creates a missing queue.
"""

import logging
import shlex
from collections.abc import Mapping
from typing import Any

from tickwheel.errors import QueueNotFound
from tickwheel.model.durations import format_duration
from tickwheel.model.queue_config import QueueConfig, parse, setting_field
from tickwheel.model.queue_config_update import differing_settings
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.tasks.task_queue import ANY_BACKOFF

_log = logging.getLogger("tickwheel.tasks")
_DEFAULT_NAMESPACE = "tw"


def check_existing(queue: str, existing: QueueConfig, declared: Mapping[str, Any], throttle: LogThrottle) -> None:
    """Check that a queue has the declared settings that never change. Log the other settings that differ.

    The settings are logged if ``throttle`` accepts the text. Raises QueueConfigConflict.
    """
    differing = differing_settings(queue, existing, declared)
    text = ", ".join(
        f"{name.removesuffix('_ms')} is {_describe(name, actual)} instead of {_describe(name, wanted)}"
        for name, (actual, wanted) in differing.items()
    )
    if differing and throttle.should_log(f"{queue}: {text}"):
        _log.warning(
            "queue %s differs from its declaration in the app, which may not change it and uses it as it is: %s; to"
            " change it, run `tickwheel queue create --app MODULE:APP --update` with the role admin",
            queue,
            text,
            extra=log_fields("queue differs", queue=queue, settings=[name.removesuffix("_ms") for name in differing]),
        )


def missing_queue_error(queue: str, declared: Mapping[str, Any], namespace: str) -> QueueNotFound:
    """Return the error about a missing queue, with the commands that create it."""
    command = creation_command(queue, declared, namespace)
    only = f"`{command}` with the role admin, or create all queues of the app by " if command else ""
    return QueueNotFound(
        f"queue {queue!r} does not exist, and this token may not create it: run"
        f" {only}`tickwheel queue create --app MODULE:APP`{'' if command else ' with the role admin'}"
    )


def creation_command(queue: str, declared: Mapping[str, Any], namespace: str) -> str:
    """Return the command that creates a queue with the declared settings; an empty text if no options express them."""
    config, words = parse(declared, ANY_BACKOFF), ["tickwheel", "queue", "create", queue]
    if namespace != _DEFAULT_NAMESPACE:
        words += ["--namespace", namespace]
    for name in declared:
        value, option = getattr(config, setting_field(name)), f"--{name.replace('_', '-')}"
        if declared[name] is None or value is None or value is False:
            continue
        if name == "forecast":
            words.append(option)
        elif name == "indexed":
            if not value:
                return ""
            words += [word for key in value for word in (option, key)]
        else:
            words += [option, format_duration(value) if setting_field(name) != name else str(value)]
    return shlex.join(words)


def _describe(field: str, value: object) -> str:
    return format_duration(value) if field.endswith("_ms") and isinstance(value, int) else repr(value)
