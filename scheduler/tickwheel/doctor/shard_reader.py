"""What the checks share: one shard of a namespace, read in pages, and what was found."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import error as StructError
from typing import Any, TypeVar

from tickwheel.errors import Forbidden, TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Command, Plan, Request, Round, pairs_from_flat
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.storage import keys

PAGE = 500
# Commands of one round: a few milliseconds of the server's time.
ROUND = 2_000

# Where something is wrong, in words that stay the same from pass to pass -> what is wrong there.
Findings = dict[str, str]
Queues = dict[int, tuple[str, QueueConfig]]
# What taking apart bytes of another shape raises, and what a server answers that holds another type than asked for.
DAMAGE = (ValueError, LookupError, ArithmeticError, TypeError, StructError, TickwheelError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardReader:
    """One shard under examination."""

    context: NamespaceContext
    number: int
    queues: Queues
    findings: Findings

    def key(self, name: str) -> str:
        return keys.shard_key(self.context.namespace, self.number, name)

    def queue_key(self, queue: str, name: str) -> str:
        return keys.queue_key(self.context.namespace, self.number, queue, name)

    def slot_key(self, level: int, number: int) -> str:
        return keys.slot_key(self.context.namespace, self.number, level, number)

    def add_finding(self, where: str, text: str) -> None:
        """Something is wrong. ``where`` must not change from pass to pass as long as it is."""
        location = f"shard {self.number}, {where}"
        self.findings[location] = f"{location}: {text}"

    def run_check(self, label: str, check: Plan[T]) -> Plan[T | None]:
        """Carry a check out; where it meets what no version writes, that is a finding, and the check ends there."""
        with report_damage(lambda text: self.add_finding(label, text)):
            return (yield from check)
        return None

    def execute(self, commands: Iterable[Command]) -> Plan[list[Any]]:
        """The answers to commands, sent in rounds of a bounded size."""
        return (yield from execute_commands(self.number, commands))

    def records(self, fields: list[bytes]) -> Plan[dict[bytes, bytes | None]]:
        """Records by their fields of `messages` (queue number and name)."""
        distinct = list(dict.fromkeys(fields))
        answers = yield from self.execute(
            ("HMGET", self.key("messages"), *page) for page in iter_chunks(distinct, PAGE)
        )
        return dict(zip(distinct, (record for answer in answers for record in answer), strict=True))


@contextmanager
def report_damage(report: Callable[[str], None]) -> Iterator[None]:
    """End the block where it meets damage, and tell of it. No answer, or no permission, is none: these are raised."""
    try:
        yield
    except (Unavailable, Forbidden):
        raise
    except DAMAGE as error:
        report(f"damaged, and not examined further: {error}")


def execute_commands(shard: int, commands: Iterable[Command]) -> Plan[list[Any]]:
    """The answers of one shard's server to commands."""
    answers = []
    for chunk in iter_chunks(list(commands), ROUND):
        replies = yield Round([Request(shard, command=command) for command in chunk])
        answers += [reply.value for reply in replies]
    return answers


class Walk:
    """A walk over a hash or sorted set, page by page; `next` until `ended`."""

    def __init__(self, shard: ShardReader, command: str, key: str) -> None:
        self._shard = shard
        self._command = command
        self._key = key
        self._cursor = b"0"
        self.ended = False

    def next(self) -> Plan[list[tuple[bytes, bytes]]]:
        """(field or member, value or score) of each entry of the next page; entries may come twice, none is missed."""
        command = (self._command, self._key, self._cursor, "COUNT", PAGE)
        self._cursor, flat = (yield from self._shard.execute([command]))[0]
        self.ended = self._cursor == b"0"
        return list(pairs_from_flat(flat))
