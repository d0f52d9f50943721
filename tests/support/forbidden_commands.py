"""What the users of `tickwheel acl` may not do: the source of the tests, and of the table in `docs/security.md`.

python -m tests.support.forbidden_commands     writes the table into the page
"""

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN: Final = "<!-- python -m tests.support.forbidden_commands writes this table -->\n"
END: Final = "<!-- end of the table -->\n"
SERVICE, EVENTS, OPERATOR = "service", "events", "operator"
ALL: Final = (SERVICE, EVENTS, OPERATOR)
# The namespace of the users, and another namespace of the server. A channel has the same form as a key.
NAMESPACE, OTHER = "tw", "tw2"
OWN: Final = f"{NAMESPACE}:{{0}}:clock"
FOREIGN: Final = f"{OTHER}:{{0}}:clock"

# What is forbidden -> the users, and the commands that would do it.
FORBIDDEN: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "read settings, passwords and users of the server": (
        ALL,
        (
            "CONFIG GET masterauth",
            "CONFIG GET requirepass",
            "CONFIG GET appendfsync",
            "CONFIG GET *",
            "ACL LIST",
            "ACL USERS",
            "ACL GETUSER default",
            "ACL LOG",
            "MODULE LIST",
            "FUNCTION LIST",
        ),
    ),
    "change settings, users or code of the server": (
        ALL,
        (
            "CONFIG SET maxmemory 1",
            "CONFIG REWRITE",
            "CONFIG RESETSTAT",
            "ACL SETUSER default nopass",
            "ACL LOAD",
            "MODULE LOAD /tmp/x.so",
            "FUNCTION LOAD x",
            "FUNCTION FLUSH",
            "SCRIPT FLUSH",
            "SCRIPT EXISTS x",
            "SCRIPT KILL",
            "SCRIPT DEBUG YES",
            "EVAL x 0",
            "EVAL_RO x 0",
            "FCALL x 0",
        ),
    ),
    "find keys of other namespaces": (
        ALL,
        (
            "SCAN 0",
            f"SCAN 0 MATCH {NAMESPACE}:*",
            f"SCAN 0 MATCH {OTHER}:*",
            "KEYS *",
            "RANDOMKEY",
            "DBSIZE",
            "CLUSTER GETKEYSINSLOT 0 10",
            "CLUSTER COUNTKEYSINSLOT 0",
        ),
    ),
    "read or change a key of another namespace": (
        ALL,
        (
            f"EXISTS {FOREIGN}",
            f"EXISTS {OWN} {FOREIGN}",
            f"TYPE {FOREIGN}",
            f"PTTL {FOREIGN}",
            f"GET {FOREIGN}",
            f"SET {FOREIGN} x",
            f"HGET {FOREIGN} x",
            f"HGETALL {FOREIGN}",
            f"HSCAN {FOREIGN} 0",
            f"HSET {FOREIGN} x y",
            f"HSETNX {FOREIGN} x y",
            f"LRANGE {FOREIGN} 0 -1",
            f"ZRANGE {FOREIGN} 0 -1",
            f"XRANGE {FOREIGN} - +",
            f"XREAD STREAMS {FOREIGN} 0",
            f"XREAD STREAMS {OWN} {FOREIGN} 0 0",
            f"XINFO STREAM {FOREIGN}",
            f"UNLINK {FOREIGN}",
            f"DEL {FOREIGN}",
            f"DUMP {FOREIGN}",
            f"OBJECT ENCODING {FOREIGN}",
            f"MEMORY USAGE {FOREIGN}",
            f"DEBUG OBJECT {FOREIGN}",
            f"SORT {OWN} GET {FOREIGN}",
            f"COPY {FOREIGN} {OWN}",
            f"RENAME {FOREIGN} {OWN}",
            f"MOVE {FOREIGN} 1",
            f"MIGRATE 127.0.0.1 1 {FOREIGN} 0 1",
        ),
    ),
    "listen to another namespace, or send to it": (
        ALL,
        (
            f"SSUBSCRIBE {FOREIGN}",
            f"SPUBLISH {FOREIGN} x",
            f"SSUBSCRIBE __keyspace@0__:{FOREIGN}",
            f"SUBSCRIBE {FOREIGN}",
            f"SUBSCRIBE __keyspace@0__:{FOREIGN}",
            "PSUBSCRIBE *",
            f"PUBLISH {FOREIGN} x",
            "PUBSUB CHANNELS",
            "PUBSUB SHARDCHANNELS",
            f"PUBSUB SHARDNUMSUB {FOREIGN}",
        ),
    ),
    "see connections and calls of other users": (
        ALL,
        (
            "CLIENT LIST",
            "CLIENT LIST ID 1",
            "CLIENT TRACKING ON BCAST",
            "MONITOR",
            "SLOWLOG GET",
            "LATENCY HISTORY command",
            "CLUSTER NODES",
        ),
    ),
    "stop other users, the server or its storage": (
        ALL,
        (
            "CLIENT KILL TYPE normal",
            "CLIENT PAUSE 1",
            "CLIENT NO-EVICT on",
            "SHUTDOWN NOSAVE",
            "DEBUG SLEEP 0",
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 1",
            "FAILOVER",
            "CLUSTER FAILOVER",
            "CLUSTER RESET",
            "SAVE",
            "BGSAVE",
            "BGREWRITEAOF",
        ),
    ),
    "receive the data as a replica, or make a replica of the server": (
        ALL,
        ("PSYNC ? -1", "SYNC", "REPLCONF listening-port 1", "REPLICAOF NO ONE", "SLAVEOF NO ONE"),
    ),
    "access the timing wheel": (
        (SERVICE,),
        (
            f"EXISTS {NAMESPACE}:{{0}}:slots",
            f"ZRANGE {NAMESPACE}:{{0}}:slots 0 -1",
            f"LRANGE {NAMESPACE}:{{0}}:w2:17 0 -1",
            f"RPUSH {NAMESPACE}:{{0}}:w2:17 x",
        ),
    ),
    "take part in an election by lease, or send to its members": (
        (SERVICE,),
        (
            f"HGETALL {NAMESPACE}:{{0}}:election",
            f"HSET {NAMESPACE}:{{0}}:election x x",
            f"SSUBSCRIBE {NAMESPACE}:{{0}}:election",
            f"SPUBLISH {NAMESPACE}:{{0}}:election x",
        ),
    ),
    "read types and expiries of keys": ((SERVICE, EVENTS), (f"TYPE {OWN}", f"PTTL {OWN}", f"XINFO STREAM {OWN}")),
    "read the inbox as an event process does": ((SERVICE, OPERATOR), (f"XREAD STREAMS {OWN} 0",)),
    # `HELLO 3 SETNAME` does the same. No server can refuse this command: see tests/security/test_acl_forged_names.py.
    "take the name of an event process": (
        (SERVICE, OPERATOR),
        (f"CLIENT SETNAME tickwheel-events:{NAMESPACE}:0",),
    ),
}


def refused_commands(user: str) -> list[str]:
    """Return every command that the server must refuse to the user of this kind."""
    return [command for users, commands in FORBIDDEN.values() if user in users for command in commands]


def forbidden_table() -> str:
    """Return the table in Markdown, one row for each thing that is forbidden."""
    rows = ["| no user may … | for example, refused |", "|---|---|"]
    for what, (users, commands) in FORBIDDEN.items():
        names = sorted({_command_name(command) for command in commands})
        who = "" if users == ALL else f" (users for: {', '.join(users)})"
        rows.append(f"| {what}{who} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(rows) + "\n"


def table_of_page() -> str:
    """Return the table that the page contains."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{forbidden_table()}{END}{rest.partition(END)[2]}")


_CONTAINERS = {"ACL", "CLIENT", "CLUSTER", "CONFIG", "FUNCTION", "MODULE", "PUBSUB", "SCRIPT", "XINFO"}


def _command_name(command: str) -> str:
    words = command.split()
    return " ".join(words[:2] if words[0] in _CONTAINERS else words[:1])


if __name__ == "__main__":
    main()
