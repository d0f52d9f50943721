"""Reads one shard in pages, and collects the findings. All checks of the audit use `ShardReader`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field as dataclass_field
from struct import error as StructError
from typing import Any, TypeVar

from tickwheel.doctor.expected_entries import ExpectedEntries, expected_entries
from tickwheel.doctor.overdue import OverdueMessages
from tickwheel.errors import Forbidden, NamespaceGone, TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Command, Plan, Request, Round, pairs_from_flat
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.storage import keys

# Elements in one page.
PAGE = 500
# Commands in one round. The server executes them in a few milliseconds.
ROUND = 2_000
# Maximum number of decoded records of a shard that are kept for its other checks.
DECODED_MAX = 10_000

# Maps the location of a problem to the text of its finding, which begins with the location. The audit of a live system
# makes several passes, and reports only problems with the same location in all passes.
Findings = dict[str, str]
Queues = dict[int, tuple[str, QueueConfig]]
# The errors that are raised for bytes of an unexpected format, and for a key of the wrong type.
DAMAGE = (ValueError, LookupError, ArithmeticError, TypeError, StructError, TickwheelError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardReader:
    """One shard that is audited."""

    context: NamespaceContext
    number: int
    queues: Queues
    findings: Findings
    may_scan: bool = True
    overdue: OverdueMessages = dataclass_field(default_factory=dict)
    decoded: dict[tuple[bytes, bytes], ExpectedEntries] = dataclass_field(default_factory=dict)

    def key(self, name: str) -> str:
        return keys.shard_key(self.context.namespace, self.number, name)

    def queue_key(self, queue: str, name: str) -> str:
        return keys.queue_key(self.context.namespace, self.number, queue, name)

    def slot_key(self, level: int, number: int) -> str:
        return keys.slot_key(self.context.namespace, self.number, level, number)

    def add_finding(self, where: str, text: str) -> None:
        """Add a problem. ``where`` must be the same in every pass while the problem lasts."""
        location = f"shard {self.number}, {where}"
        self.findings[location] = f"{location}: {text}"

    def run_check(self, label: str, check: Plan[T]) -> Plan[T | None]:
        """Run a check and return its result.

        If the check reads data that no version of Tickwheel writes, end the check, add a finding, and return None.
        """
        with report_damage(lambda text: self.add_finding(label, text)):
            return (yield from check)
        return None

    def execute(self, commands: Iterable[Command]) -> Plan[list[Any]]:
        """Return the replies to the commands, which are sent in rounds of a bounded size."""
        return (yield from execute_commands(self.number, commands))

    def execute_pairs(self, pairs: Iterable[tuple[Command, Command]]) -> Plan[list[tuple[Any, Any]]]:
        """Return the replies to pairs of commands. The server executes the two commands of a pair successively.

        So data that another client changes hardly ever differs between the two replies.
        """
        # A round has an even number of commands, so no pair is divided.
        answers = yield from self.execute(command for pair in pairs for command in pair)
        return list(zip(answers[::2], answers[1::2], strict=True))

    def expected_entries(self, field: bytes, stored: bytes) -> ExpectedEntries:
        """Return the decoded record and its index entries. ``field`` is the field in `messages`; its queue must exist.

        Raises ValueError if the scripts would not write the record this way.
        """
        message = self.decoded.get((field, stored))
        if message is None:
            queue, config = self.queues[int.from_bytes(field[:2], "big")]
            message = expected_entries(queue, config, field[2:], stored)
            if len(self.decoded) < DECODED_MAX:
                self.decoded[field, stored] = message
        return message

    def records(self, fields: list[bytes]) -> Plan[dict[bytes, bytes | None]]:
        """Return the records of messages by their fields in `messages` (queue number and name); None if absent."""
        distinct = list(dict.fromkeys(fields))
        answers = yield from self.execute(
            ("HMGET", self.key("messages"), *page) for page in iter_chunks(distinct, PAGE)
        )
        return dict(zip(distinct, (record for answer in answers for record in answer), strict=True))


@contextmanager
def report_damage(report: Callable[[str], None]) -> Iterator[None]:
    """Call ``report`` with a text if the ``with`` block meets damaged data, and end the block.

    A namespace that is being deleted is reported, too. Unavailable and Forbidden do not indicate damage, so these
    errors propagate.
    """
    try:
        yield
    except (Unavailable, Forbidden):
        raise
    except NamespaceGone as error:
        report(str(error))
    except DAMAGE as error:
        report(f"the data is damaged and was not checked further: {error}")


def execute_commands(shard: int, commands: Iterable[Command]) -> Plan[list[Any]]:
    """Return the replies of one shard's server to the commands."""
    answers = []
    for chunk in iter_chunks(list(commands), ROUND):
        replies = yield Round([Request(shard, command=command) for command in chunk])
        answers += [reply.value for reply in replies]
    return answers


class Walk:
    """Iterates over a hash or sorted set, page by page: call `next` until `ended`."""

    def __init__(self, shard: ShardReader, command: str, key: str) -> None:
        self._shard = shard
        self._command = command
        self._key = key
        self._cursor = b"0"
        self.ended = False

    def next(self) -> Plan[list[tuple[bytes, bytes]]]:
        """Return (field or member, value or score) of each entry of the next page.

        Entries may occur twice. Entries that exist during the whole iteration are not missed.
        """
        command = (self._command, self._key, self._cursor, "COUNT", PAGE)
        self._cursor, flat = (yield from self._shard.execute([command]))[0]
        self.ended = self._cursor == b"0"
        return list(pairs_from_flat(flat))
