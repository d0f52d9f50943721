"""Redrive: another round of attempts for a message that is errored."""

from tickwheel.model.results import Change
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.locate import call_by_id
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan


def redrive(
    context: NamespaceContext,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    sessions: Sessions | None = None,
) -> Plan[Change]:
    """Errored -> Pending, with attempts from zero."""
    return call_by_id(context, "redrive", queue, id_, exclusive_value, sessions)
