"""Settings of a namespace: small named texts that programs read while they run. The metadata shard stores them.

A read costs two commands in one round trip: the second one checks that the namespace still exists, because a lost
setting would otherwise count as one that is not set. A program that needs a setting for every message should cache it
for about a second.
"""

import re

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import call_metadata_shard
from tickwheel.plan import Plan, pairs_from_flat
from tickwheel.storage.keys import settings_key
from tickwheel.storage.stored_text import decode_text

_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.SETTING_NAME_CHARS}}}")


def list_settings(context: NamespaceContext) -> Plan[dict[str, str]]:
    """Return all settings, by name. Raises NamespaceGone."""
    reply = yield from context.read_metadata(("HGETALL", settings_key(context.namespace)))
    label = f"a setting of namespace {context.namespace!r}"
    return {decode_text(label, name): decode_text(label, value) for name, value in sorted(pairs_from_flat(reply.value))}


def read(context: NamespaceContext, name: str) -> Plan[str | None]:
    """Return one setting, or None if it is not set. Raises NamespaceGone."""
    reply = yield from context.read_metadata(("HGET", settings_key(context.namespace), setting_name(name)))
    return None if reply.value is None else decode_text(f"setting {name!r}", reply.value)


def write(context: NamespaceContext, name: str, value: str | None) -> Plan[None]:
    """Set a setting, or remove it if ``value`` is None. Idempotent."""
    args: list[bytes | int | str] = [setting_name(name), context.shards, limits.SETTINGS_MAX, *setting_value(value)]
    reply = yield from call_metadata_shard(context, "set_setting", args)
    if reply.value != 1:
        raise ValueError(f"the answer to set_setting is {reply.value!r:.80}")


def setting_name(name: object) -> str:
    """Return the checked name of a setting. Raises InvalidArgument."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"a setting's name must have 1 to {limits.SETTING_NAME_CHARS} letters, digits, '.', '_', '-' or ':', not"
            f" {validation.preview(name)}"
        )
    return validation.to_plain_str(name)


def setting_value(value: object) -> list[bytes]:
    """Return the value as script arguments: empty for None. Raises InvalidArgument."""
    return [] if value is None else [validation.text("a setting's value", value, limits.SETTING_BYTES)]
