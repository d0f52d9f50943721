"""Checks small shards concurrently, in the same round trips. Large shards are checked one by one, to bound memory."""

from itertools import islice
from typing import Any

from tickwheel.doctor.shard_reader import PAGE, ShardReader
from tickwheel.errors import Forbidden, TickwheelError, Unavailable
from tickwheel.plan import Plan, PlanRun, Reply, Request, Round

# The maximum number of shards that are checked at the same time. During its checks, each of them takes at least 256 KiB
# of memory for its timers.
SHARDS_TOGETHER = 64


def find_small(shards: list[ShardReader]) -> Plan[list[ShardReader]]:
    """Return the shards whose messages, inbox and events fit into one page."""
    lengths = ("HLEN", "messages"), ("XLEN", "inbox"), ("XLEN", "events")
    requests = [
        Request(shard.number, command=(command, shard.key(name))) for shard in shards for command, name in lengths
    ]
    try:
        replies = iter((yield Round(requests)))
    except (Unavailable, Forbidden):
        raise
    except TickwheelError:
        # The data of a shard is damaged. All shards are then checked one at a time, and the checks report the damage.
        return []
    return [shard for shard in shards if sum(reply.value for reply in islice(replies, len(lengths))) <= PAGE]


def run_together(checks: list[Plan[None]]) -> Plan[None]:
    """Run the checks of several shards in step: each round has the requests of all checks."""
    runs = [PlanRun(check) for check in checks]
    while steps := [(run, step) for run in runs if isinstance(step := run.next_step(), Round)]:
        runs = [run for run, _ in steps]
        try:
            replies: list[Reply] = yield Round([request for _, step in steps for request in step.requests])
        except (Unavailable, Forbidden):
            raise
        except TickwheelError:
            # The error concerns one of the shards.
            yield from _run_one_by_one(steps)
        else:
            answers = iter(replies)
            for run, step in steps:
                run.answer = list(islice(answers, len(step.requests)))


def _run_one_by_one(steps: list[tuple[PlanRun[Any], Round]]) -> Plan[None]:
    for run, step in steps:
        try:
            run.answer = yield step
        except TickwheelError as error:
            run.error = error
