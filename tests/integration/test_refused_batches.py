"""A batch of timers that the server refuses for an internal reason is sent again, by the same event process."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import NewMessage, Tickwheel
from tickwheel.driver.commands import Command
from tickwheel.driver.firing import POSTPONE_MS
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.limits import STALE_CONFIG_RETRIES
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call
from tickwheel.testing import VirtualClock, manual_wheel

pytestmark = pytest.mark.integration

MESSAGES = 20
MS = timedelta(milliseconds=1)
LEASE, RETENTION = timedelta(minutes=1), timedelta(minutes=10)
STATES = {"promote": "invisible", "expire": "running", "retire": "completed"}


@pytest.mark.parametrize("script", STATES)
@pytest.mark.parametrize(
    ("error", "times"),
    [
        pytest.param("OOM command not allowed when used memory > 'maxmemory'.", 1, id="out of memory"),
        pytest.param("STALECONFIG", STALE_CONFIG_RETRIES + 1, id="a configuration that stays outdated"),
    ],
)
def test_a_refused_batch_waits_and_is_sent_again(
    tw: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, script: str, error: str, times: int
) -> None:
    refused: Counter[str] = Counter()
    execute = ShardConnection.execute

    def refusing(link: ShardConnection, command: Command) -> Any:
        """Refuse the first calls of each shard."""
        if isinstance(command, Call) and command.script.name == script and refused[command.keys[0]] < times:
            refused[command.keys[0]] += 1
            raise ScriptError(error)
        return execute(link, command)

    queue = tw.create_queue("q", lease=LEASE, retention=RETENTION)
    queue.enqueue_many([NewMessage(delay=LEASE if script == "promote" else None)] * MESSAGES)
    messages = queue.dequeue(limit=MESSAGES)
    if script == "retire":
        queue.complete_many(messages)
    # The test kit treats all other refusals than the two that a driver expects as bugs.
    monkeypatch.setattr(manual_wheel, "_EXPECTED", ("FENCED", "STALECONFIG", "OOM"))
    monkeypatch.setattr(ShardConnection, "execute", refusing)

    clock.advance(RETENTION if script == "retire" else LEASE)
    assert refused
    assert queue.counts()[STATES[script]] == MESSAGES
    clock.advance(POSTPONE_MS * MS)
    assert queue.counts()[STATES[script]] == 0
    assert queue.counts()["pending"] == (0 if script == "retire" else MESSAGES)
