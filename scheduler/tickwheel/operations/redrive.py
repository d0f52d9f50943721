"""Redrive: another round of attempts for a message that is errored."""

from tickwheel.model.results import Change
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.locate import _call_by_id, locate
from tickwheel.operations.sessions import RequestSessions, SessionPool
from tickwheel.plan import Plan


def redrive(
    context: NamespaceContext,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    sessions: SessionPool | RequestSessions | None = None,
) -> Plan[Change]:
    """Errored -> Pending, with attempts from zero."""
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    return (yield from _call_by_id(context, "redrive", queue, shard, id_, [], b"", raw, sessions))
