"""The names that a Redis server receives: keys, clock fields, names of clients, rights, and SHAs of scripts."""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.frozen.log_events import trees

_NAMESPACE, _QUEUE = "tw", "jobs"
# A call in a script with the clock's key, and the rest of its line.
_CALL: Final = re.compile(r"call\(\s*'(H[A-Z]+)'\s*,\s*clock\s*,([^\n]*)")
_WORDS: Final = re.compile(r"'([a-z_]+)'")


def names() -> dict[str, Any]:
    """Return keys, channels, clock fields and names of clients. Follows `tickwheel.storage.keys` and `client_name`."""
    from tickwheel.storage import keys
    from tickwheel.storage.fence import client_name, shard_from_client_name

    named = client_name(_NAMESPACE, 3)
    assert shard_from_client_name(_NAMESPACE, named) == 3
    return {
        "keys of a shard": {name: keys.shard_key(_NAMESPACE, 3, name) for name in keys.SHARD_KEYS},
        "keys of a queue": {name: keys.queue_key(_NAMESPACE, 3, _QUEUE, name) for name in keys.QUEUE_KEYS},
        "slot of the wheel": keys.slot_key(_NAMESPACE, 3, 2, 17),
        "session": keys.session_key(_NAMESPACE, 3, "slot"),
        "home": {
            "namespace": keys.namespace_key(_NAMESPACE),
            "queues": keys.queues_key(_NAMESPACE),
            "settings": keys.settings_key(_NAMESPACE),
        },
        "fields of the clock": sorted(set(_clock_fields_in_scripts()) | set(_clock_fields_in_python())),
        "client of an event process": named,
        "setting of a task's route": _route_setting(),
    }


def _route_setting() -> str:
    """Return the setting of a route. Follows `tickwheel.tasks.celery_routes.write`."""
    from tickwheel.tasks import Route, celery_routes

    class Settings:
        def set_setting(self, name: str, value: str | None) -> None:
            self.setting = f"{name} = {value}"

    settings: Any = Settings()
    celery_routes.write(settings, "mail.send", Route("tickwheel", 0.5))
    return str(settings.setting)


def _clock_fields_in_scripts() -> Iterator[str]:
    from tickwheel.storage import scripts

    for name in scripts.names():
        for clock in ("_clock", "_clock_test"):
            for command, rest in _CALL.findall(scripts.load(name, clock).source):
                words = _WORDS.findall(rest)
                yield from words[:1] if command in ("HGET", "HINCRBY") else words


def _clock_fields_in_python() -> Iterator[str]:
    """Yield the fields of commands that are written as a tuple: ``("HMGET", shard.key("clock"), "fence", …)``."""
    for tree in trees().values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Tuple) or len(node.elts) < 3:
                continue
            command, key, *fields = node.elts
            of_hash = isinstance(command, ast.Constant) and str(command.value) in ("HGET", "HMGET", "HSET", "HEXISTS")
            if of_hash and any(isinstance(node, ast.Constant) and node.value == "clock" for node in ast.walk(key)):
                yield from (str(node.value) for node in fields if isinstance(node, ast.Constant))


def script_shas() -> dict[str, Any]:
    """Return the SHA of each script, with the server's clock and with the clock of tests.

    Follows `tickwheel.storage.scripts`. A renamed script keeps its SHA: one entry is gone, and a new entry has its SHA.
    """
    from tickwheel.storage import scripts

    return {
        name: {"sha": scripts.load(name).sha, "under a test's clock": scripts.load(name, "_clock_test").sha}
        for name in scripts.names()
    }


def acl() -> dict[str, Any]:
    """Return the ACL rule of each user of a namespace, without the password. Follows `tickwheel.redis.acl.users`."""
    from tickwheel.redis.acl import users

    rules = {}
    for user in users(_NAMESPACE):
        words = ["#(sha256)" if word.startswith("#") else word for word in user.rule.split()]
        rights = sorted(word for word in words if word.startswith("+"))
        rules[user.name] = {"rights": rights, "rule": " ".join(word for word in words if word not in rights)}
    return rules
