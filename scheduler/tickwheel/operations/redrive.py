"""Redrive: moves an errored message back to Pending."""

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
    """Move an errored message back to Pending, and reset its count of attempts to zero. Return the change.

    Raises MessageNotFound, or InvalidTransition if the message is not errored.
    """
    return call_by_id(context, "redrive", queue, id_, exclusive_value, sessions)
