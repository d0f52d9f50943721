"""The errors of the scripts in `lua/`: which exception each becomes, and when the call can be sent again.

An error is a code, then the numbers that this code defines, then a text for humans. No program interprets the text. The
header of a script lists the codes that the script raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import takewhile
from typing import Final

from tickwheel import limits
from tickwheel.errors import DataLoss, Fenced, Forbidden, InvalidArgument, OutboxFull, QueueBlocked, TickwheelError
from tickwheel.storage.key_types import WRONGTYPE

# The codes that plans and drivers compare.
STALECONFIG: Final = "STALECONFIG"
SESSIONEXPIRED: Final = "SESSIONEXPIRED"
SESSIONOLD: Final = "SESSIONOLD"
OTHERCALL: Final = "OTHERCALL"
NAMESPACEGONE: Final = "NAMESPACEGONE"
NUMBERSGIVEN: Final = "NUMBERSGIVEN"
BLOCKED: Final = "BLOCKED"
FENCED: Final = "FENCED"
# The text of an InvalidArgument.
OTHER_CALL_ADVICE: Final = (
    "the request_id belongs to another call: keep the name in it, and use a new number for each different call"
)


class RetryCondition(Enum):
    """When a rejected call can succeed."""

    NEVER = "never, unless the call is changed"
    LATER = "later, unchanged"
    WITH_CURRENT_CONFIG = "with the current configuration of the queue"
    IN_NEW_SESSION = "in a new session, if the rejected call was not itself a retry"


@dataclass(frozen=True, slots=True)
class ScriptErrorSpec:
    """One code. If ``exception`` is None, the plan or driver that made the call handles the error.

    ``fields`` are the names of the numbers after the code. These numbers become arguments of the exception.
    ``message`` is the template of the exception's text: ``subject`` is the queue, shard or namespace of the call, and
    ``text`` is the text of the script.
    """

    code: str
    exception: Callable[..., TickwheelError] | None
    retry: RetryCondition
    message: str = "{subject}: {code} {text}"
    fields: tuple[str, ...] = ()


_SPECS: Final = (
    ScriptErrorSpec(STALECONFIG, None, RetryCondition.WITH_CURRENT_CONFIG),
    ScriptErrorSpec(BLOCKED, QueueBlocked, RetryCondition.LATER, "{subject}: {text}; `unblock` the queue to continue"),
    ScriptErrorSpec(
        "OUTBOXFULL",
        OutboxFull,
        RetryCondition.LATER,
        "{subject}: the outbox is full: {size:,} bytes of events are not yet relayed to Kafka, and the limit is"
        " {limit:,} bytes a shard; enqueue, reschedule and redrive are rejected until the relay catches up: check that"
        " the relay runs, then retry the call",
        fields=("size", "limit"),
    ),
    ScriptErrorSpec(
        "TOOFAR",
        InvalidArgument,
        RetryCondition.NEVER,
        f"due must be within {timedelta(milliseconds=limits.DELAY_MS_MAX).days} days from now, by the clock of the"
        " shard's server",
    ),
    ScriptErrorSpec(SESSIONEXPIRED, None, RetryCondition.IN_NEW_SESSION),
    ScriptErrorSpec(SESSIONOLD, None, RetryCondition.NEVER),
    ScriptErrorSpec(OTHERCALL, InvalidArgument, RetryCondition.NEVER, f"{{subject}}: {OTHER_CALL_ADVICE}"),
    ScriptErrorSpec(NAMESPACEGONE, None, RetryCondition.NEVER),
    ScriptErrorSpec("TOOMANYQUEUES", TickwheelError, RetryCondition.NEVER, "{text}"),
    ScriptErrorSpec(NUMBERSGIVEN, None, RetryCondition.NEVER),
    ScriptErrorSpec("TOOMANYFORTOKEN", Forbidden, RetryCondition.NEVER, "{text}"),
    ScriptErrorSpec("TOOMANYSETTINGS", TickwheelError, RetryCondition.NEVER, "{text}"),
    ScriptErrorSpec(FENCED, Fenced, RetryCondition.NEVER, fields=("held",)),
    ScriptErrorSpec(
        "ELECTION",
        TickwheelError,
        RetryCondition.NEVER,
        "{subject}: {code} {text}: start this event process with that kind of election. To change the kind, stop all"
        " event processes and run `tickwheel shards reset-epoch`",
    ),
    ScriptErrorSpec(
        "EMBEDDED",
        TickwheelError,
        RetryCondition.NEVER,
        "{subject}: {text}, whose event processes elect leaders by a lock file: run `tickwheel events --data-dir DIR`"
        " without --election. If the data was copied from a data directory to this server, stop all event processes and"
        " run `tickwheel shards reset-epoch`",
    ),
    ScriptErrorSpec("CORRUPT", TickwheelError, RetryCondition.NEVER),
    ScriptErrorSpec(
        "STREAMENDED",
        TickwheelError,
        RetryCondition.LATER,
        "{subject}: {code} {text}. If the stream is the inbox, an event process begins a new inbox within seconds. Find"
        " out who can write to the keys of the shard",
    ),
)
SCRIPT_ERRORS: Final[Mapping[str, ScriptErrorSpec]] = {spec.code: spec for spec in _SPECS}
# Errors of the server itself.
_WRONG_TYPE: Final = ScriptErrorSpec(WRONGTYPE, DataLoss, RetryCondition.NEVER, "{subject}: {text}")
_OTHER: Final = ScriptErrorSpec("", TickwheelError, RetryCondition.NEVER)
# The server cannot save its data, has too few replicas, or is busy with a script.
_TEMPORARY: Final = frozenset({"MISCONF", "NOREPLICAS", "BUSY"})


class ScriptError(Exception):
    """An error reply of a script or its server. The first word of the reply is ``code``, the rest is ``text``."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.code, _, self.text = reply.partition(" ")

    @property
    def retry(self) -> RetryCondition:
        """When the call can be sent again; NEVER for errors of the server itself."""
        return SCRIPT_ERRORS.get(self.code, _OTHER).retry

    @property
    def is_temporary(self) -> bool:
        """Whether the server refuses all calls that write for now, whatever the call is."""
        return self.code in _TEMPORARY

    @property
    def is_failure(self) -> bool:
        """Whether the script itself failed, in contrast to an error that the script or the server reports.

        A damaged record or index entry of one message makes a script fail.
        """
        return "@user_script:" in self.text and not self.code.isupper()

    def to_tickwheel_error(self, subject: str) -> TickwheelError:
        """Return the exception for the caller, whose call was for ``subject``."""
        spec = SCRIPT_ERRORS.get(self.code, _WRONG_TYPE if self.code == WRONGTYPE else _OTHER)
        numbers = map(int, takewhile(str.isdecimal, self.text.split(" ")))
        fields = dict(zip(spec.fields, numbers, strict=False))
        text = self.text.split(" ", len(fields))[-1]
        message = spec.message.format(subject=subject, code=self.code, text=text, **fields)
        return (spec.exception or TickwheelError)(message, **fields)
